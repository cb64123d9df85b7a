"""Trials that somebody else wrote into the study: forged, broken, or not asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.candidates import candidate_of
from builders.joined import ELSEWHERE, ONE, OTHERS, SMALL, SPACE, TWO, proposed, record_of, tell
from builders.measurements import P99_40MS, synthetic_measurement
from builders.surface import strategy, synthetic_trial

from tuner.errors import EnvironmentNotReadyError
from tuner.run.reading import UnreadableFileError
from tuner.score.point import Score, judge_point
from tuner.score.trial import Trial, TrialState
from tuner.search.searcher import JoinedSearcher, Searcher
from tuner.search.study.record import Claim, StudyRecord
from tuner.space.candidate import Candidate
from tuner.spec.model import Strategy

POINT = judge_point([P99_40MS], synthetic_measurement())


def good(candidate: Candidate = ONE) -> dict[str, Any]:
    score = Score(900.0, feasible=True, violation=0.0, best_point=0)
    return Trial(7, candidate, TrialState.MEASURED, (POINT,), score, worker=ELSEWHERE).to_json()


def changed(path: str, value: Any) -> Callable[[], Any]:
    def forge() -> Any:
        data = good()
        *above, last = path.split(".")
        inner: Any = data
        for name in above:
            inner = inner[int(name) if name.isdecimal() else name]
        inner[last] = value
        return data

    return forge


FORGED = {
    "a config other than the one claimed": lambda: good(TWO),
    "a config outside the space": changed(
        "candidate.fields", {"instance_group.count": 99, "parameters.threads": 1}
    ),
    "a field nobody searches": changed("candidate.fields", {"parameters.EXECUTION_ENV_PATH": "/x"}),
    "flags of its own": changed("candidate.server_args", ["--backend-directory=/x"]),
    "no candidate": changed("candidate", None),
    "a score that is text": changed("score.value", "1e9"),
    "a score that is no number": changed("score.value", float("nan")),
    "a best point it does not have": changed("score.best_point", 5),
    "measured without a score": changed("score", None),
    "a load below zero": changed("points.0.measurement.load.level", -1.0),
    "no SLO": changed("points.0.slo", []),
    "a state there is not": changed("state", "won"),
    "a time that is text": changed("time", {"searching_s": "x"}),
    "a field too many": changed("points.0.measurement.extra", 1),
    "a list": lambda: ["trial"],
    "text": lambda: "trial",
    "nothing in it": dict,
}


def test_what_a_worker_measured_is_taken_as_it_is() -> None:
    assert Claim(ONE.key, True, good()).trial(SPACE) == Trial.from_json(good())
    outside = candidate_of({"instance_group.count": 99})
    with pytest.raises(UnreadableFileError, match="not in the space"):
        Claim(outside.key, True, good(outside)).trial(SPACE)


@pytest.mark.parametrize("what", FORGED)
def test_a_run_drops_a_forged_trial_with_a_note_and_goes_on(what: str, tmp_path: Path) -> None:
    kept: list[Trial] = []
    told: list[str] = []
    url = f"sqlite:///{tmp_path / 'study.db'}"
    with record_of(url) as record, record_of(url, ELSEWHERE) as worker:
        run = Searcher(
            SPACE, strategy(Strategy.GRID, SMALL)[1], [], record, kept.append, told.append
        )
        assert run.start(proposed(run))
        tell(run, SPACE.current)
        assert worker.started(1, ONE)
        forge(worker, ONE, FORGED[what]())
        honest = synthetic_trial(2, TWO, [])
        assert worker.started(2, TWO)
        worker.write([honest])
        asked = []
        while (proposal := run.next()) is not None:
            asked.append(proposal.candidate)  # type: ignore[union-attr]
            assert run.start(asked[-1])
            tell(run, asked[-1])
        run.over()
    assert [t.candidate for t in kept if t.worker] == [TWO], told
    assert len(told) == 1
    assert told[0].startswith(f"dropped: the trial handed in for {ONE.key} cannot be read")
    assert set(asked) == set(OTHERS) - {ONE, TWO}


def forge(record: StudyRecord, candidate: Candidate, result: Any) -> None:
    """A finished claim on ``candidate`` with ``result`` in it."""
    import optuna

    claim = record._open.pop(candidate.key)
    number = record._storage.get_trial_number_from_id(claim)
    record._storage.set_trial_user_attr(claim, "result", result)
    record._study.tell(number, 1e9, optuna.trial.TrialState.COMPLETE)


def test_a_worker_learns_nothing_from_a_forged_trial(tmp_path: Path) -> None:
    told: list[str] = []
    url = f"sqlite:///{tmp_path / 'study.db'}"
    with record_of(url) as run, record_of(url, ELSEWHERE) as worker:
        run.open_to_workers({})
        assert run.started(0, SPACE.current)
        run.write([synthetic_trial(0, SPACE.current, [])])
        assert worker.started(1, ONE)
        forge(worker, ONE, FORGED["a score that is text"]())
        joined = JoinedSearcher(
            SPACE, strategy(Strategy.GRID, SMALL)[1], worker, 9, lambda: None, told.append
        )
        assert joined.next() is not None
        assert [t.candidate for t in joined.history] == [SPACE.current]
    assert len(told) == 1


@pytest.mark.parametrize("by_worker", [True, False])
def test_a_claim_on_what_the_run_must_measure_does_not_stop_it(
    by_worker: bool, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    with record_of(url) as record, record_of(url, ELSEWHERE if by_worker else None) as other:
        run = Searcher(SPACE, strategy(Strategy.GRID, SMALL)[1], [], record)
        assert other.started(0, SPACE.current)
        assert other.started(1, ONE)
        assert run.start(proposed(run))
        tell(run, SPACE.current)
        asked = []
        while (proposal := run.next()) is not None:
            candidate = proposal.candidate  # type: ignore[union-attr]
            asked.append(candidate)
            if run.start(candidate):
                tell(run, candidate)
            assert len(asked) < 9
    assert {t.candidate for t in run.history} == {SPACE.current, *OTHERS} - {ONE}


def test_a_stranger_in_the_study_is_no_trial_of_the_run(tmp_path: Path) -> None:
    import optuna

    url = f"sqlite:///{tmp_path / 'study.db'}"
    with record_of(url) as record:
        for attributes in ({"run": "run-1"}, {"run": "run-1", "candidate": 3}, {}):
            bare = optuna.trial.create_trial(value=1.0, user_attrs=attributes)
            record._study.add_trial(bare)
        run = Searcher(SPACE, strategy(Strategy.GRID, SMALL)[1], [], record)
        assert run.start(proposed(run))
        assert record.claims()[0].candidate_key == SPACE.current.key


def test_a_study_that_cannot_be_read_is_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: Any) -> Any:
        raise KeyError("value")

    with record_of(f"sqlite:///{tmp_path / 'study.db'}") as record:
        monkeypatch.setattr(record._study, "get_trials", broken)
        with pytest.raises(EnvironmentNotReadyError, match="the study cannot be read"):
            record.claims()
