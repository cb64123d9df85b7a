"""The study that a run keeps: what Optuna reads in it, whatever interrupts it."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from builders.candidates import candidate_of, fields_of
from builders.reasons import said
from builders.spaces import BATCH, DELAY, INSTANCES, space_of
from builders.surface import SURFACE, searched, strategy

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.machine.uninterrupted import uninterrupted
from tuner.score.point import Score
from tuner.score.trial import Trial, TrialState
from tuner.search.optuna_trial import FAILED_VIOLATION, observe
from tuner.search.searcher import Searcher
from tuner.search.study import StudyRecord
from tuner.spec.model import StrategyName
from tuner.spec.slo import Goal, Objective

TRIALS = 8


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "study.db"


def record_of(file: Path, space: dict[str, object] = SURFACE) -> StudyRecord:
    return StudyRecord(file, "m", "run-1", space_of(space), Objective.goodput())


def recorded(file: Path) -> list[optuna.trial.FrozenTrial]:
    """What any Optuna tool reads from the storage."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.RDBStorage(f"sqlite:///{file}")
    try:
        return optuna.load_study(study_name="m", storage=storage).trials
    finally:
        storage.remove_session()
        storage.engine.dispose()


def run(file: Path, history: list[Trial], trials: int) -> list[Trial]:
    space, chosen = strategy(StrategyName.TPE, SURFACE)
    with record_of(file) as record:
        return searched(Searcher(space, chosen, history, record), trials)


def test_a_recorded_trial_has_the_names_of_the_spec_and_its_result(file: Path) -> None:
    trials = run(file, [], TRIALS)
    frozen = recorded(file)
    assert len(frozen) == TRIALS
    assert {f"m/{INSTANCES}", f"m/{BATCH}", f"m/{DELAY}.choice"} <= frozen[1].params.keys()
    for trial, seen in zip(trials, frozen, strict=True):
        assert seen.user_attrs["trial"] == trial.number
        assert seen.user_attrs["candidate"] == trial.candidate.key
        assert seen.user_attrs["state"] == trial.state.value
        assert seen.user_attrs["feasible"] == bool(trial.score and trial.score.feasible)
    assert frozen[1].params[f"m/{BATCH}"] == str(fields_of(trials[1].candidate)[BATCH])
    assert frozen[1].state is optuna.trial.TrialState.COMPLETE
    assert frozen[6].user_attrs["reason"] == "synthetic failure"
    assert (frozen[6].state, frozen[6].value) == (optuna.trial.TrialState.PRUNED, None)


def test_every_finished_trial_has_its_constraint(file: Path) -> None:
    run(file, [], TRIALS)
    constraints = [t.system_attrs["constraints"][0] for t in recorded(file)]
    assert constraints[6] == FAILED_VIOLATION
    assert 0.0 in constraints


def test_trials_that_the_study_missed_are_added_once(file: Path) -> None:
    trials = searched(Searcher(*strategy(StrategyName.TPE, SURFACE)), 4)
    for _ in range(2):
        with record_of(file) as record:
            record.write(trials)
    assert [t.user_attrs["trial"] for t in recorded(file)] == [0, 1, 2, 3]


def test_a_study_of_another_space_is_refused(file: Path) -> None:
    with record_of(file):
        pass
    with pytest.raises(SpecError, match="another space"):
        record_of(file, space={INSTANCES: {"int": [1, 9]}})


def test_a_study_that_cannot_be_opened_is_an_environment_error() -> None:
    with pytest.raises(EnvironmentNotReadyError) as error:
        record_of(Path("/no/such/directory/study.db"))
    assert "free some space" in error.value.hint


def test_optuna_is_not_heard(
    file: Path, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    warnings.simplefilter("always")
    run(file, [], 10)
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""
    assert [str(w.message) for w in recwarn if "optuna" in str(w.filename).lower()] == []


ANY = candidate_of({})

GOODPUT = Goal.MAXIMIZE_GOODPUT


def trial(state: TrialState, score: Score | None) -> Trial:
    return Trial(3, ANY, state, score=score)


@pytest.mark.parametrize("violation", [0.0, 0.4])
def test_a_measured_trial_tells_its_score_and_a_missed_slo_is_a_constraint(
    violation: float,
) -> None:
    score = Score(300.0, violation == 0.0, violation, None)
    seen = observe(trial(TrialState.MEASURED, score), GOODPUT)
    assert (seen.value, seen.violation) == (300.0, violation)


def test_a_missed_slo_without_a_size_is_still_infeasible() -> None:
    seen = observe(trial(TrialState.MEASURED, Score(30.0, False, 0.0, None)), GOODPUT)
    assert seen.violation > 0


@pytest.mark.parametrize("goal", Goal)
def test_a_loser_is_feasible_and_ranked_by_how_badly_it_lost(goal: Goal) -> None:
    close, far = (
        observe(trial(TrialState.PRUNED, Score(300.0, False, v, None)), goal) for v in (0.1, 2.0)
    )
    assert close.violation == far.violation == 0
    assert close.value is not None
    assert far.value is not None
    better_first = [300.0, close.value, far.value]
    assert better_first == sorted(better_first, reverse=goal is GOODPUT)


def test_a_failed_trial_is_worse_than_any_missed_slo() -> None:
    seen = observe(Trial(3, ANY, TrialState.FAILED, reason=said("refused")), GOODPUT)
    assert seen.value is None
    assert seen.violation == FAILED_VIOLATION


class StoppedError(Exception):
    pass


@pytest.fixture
def stopping() -> Iterator[None]:
    """SIGTERM raises, as it does in a run."""

    def heard(number: int, _: object) -> None:
        raise StoppedError

    before = signal.signal(signal.SIGTERM, heard)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_signal_is_heard_once_the_block_is_over(stopping: None) -> None:
    done = []
    with pytest.raises(StoppedError):  # noqa: PT012
        with uninterrupted():
            with uninterrupted():
                signal.raise_signal(signal.SIGTERM)
                done.append("inner")
            done.append("outer")
        done.append("never")
    assert done == ["inner", "outer"]
    with pytest.raises(StoppedError):
        signal.raise_signal(signal.SIGTERM)


def test_an_error_of_the_block_is_not_lost_without_a_signal(stopping: None) -> None:
    with pytest.raises(KeyError), uninterrupted():
        raise KeyError


def test_other_threads_do_without() -> None:
    done = []

    def work() -> None:
        with uninterrupted():
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [1]
