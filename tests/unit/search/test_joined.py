"""Workers and the run that they measure for, in one storage, which others may write into."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.candidates import candidate_of
from builders.measurements import P99_40MS, synthetic_measurement
from builders.spaces import INSTANCES, space_of
from builders.surface import strategy, synthetic_trial

from tuner.errors import EnvironmentNotReadyError
from tuner.record.reading import UnreadableFileError
from tuner.score.point import Score, judge_point
from tuner.score.trial import Trial, TrialState, Worker
from tuner.search.searcher import JoinedSearcher, Searcher
from tuner.search.strategy import Enough, InOrder, Proposal
from tuner.search.study.record import Claim, StudyRecord
from tuner.space.candidate import Candidate
from tuner.spec.model import StrategyName
from tuner.spec.slo import Objective

SMALL = {INSTANCES: {"int": [1, 3]}, "parameters.threads": {"choice": [1, 2]}}

SPACE = space_of(SMALL)

OTHERS = [c for c in SPACE.enumerate() if c != SPACE.canonical(SPACE.current)]

ONE, TWO = OTHERS[-2:]

ELSEWHERE = Worker("box", "1")


def record_of(url: str, worker: Worker | None = None) -> StudyRecord:
    return StudyRecord(url, "m", "run-1", SPACE, Objective.goodput(), worker)


def tell(searcher: Searcher, candidate: Candidate) -> Trial:
    trial = synthetic_trial(len(searcher.history), candidate, searcher.history)
    searcher.tell(trial)
    return trial


def proposed(searcher: Searcher) -> Candidate:
    proposal = searcher.next()
    assert isinstance(proposal, Proposal)
    return proposal.candidate


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'study.db'}"


def test_of_two_claims_on_a_candidate_the_first_holds_until_it_is_given_up(url: str) -> None:
    with record_of(url) as run, record_of(url, ELSEWHERE) as late:
        with record_of(url, ELSEWHERE) as first:
            assert first.started(1, ONE)
            assert not late.started(1, ONE)
            assert not run.started(1, ONE)
            assert [c.candidate_key for c in run.claims()] == [ONE.key]
        assert run.claims() == []  # it left, and gave it up
        assert run.started(1, ONE)
        assert not late.started(1, ONE)


def test_a_finished_candidate_is_nobodys_any_more(url: str) -> None:
    with record_of(url) as run, record_of(url, ELSEWHERE) as worker:
        assert worker.started(1, ONE)
        worker.hand_in(synthetic_trial(1, ONE, []))
        assert not run.started(1, ONE)
    with record_of(url) as run:
        assert len(run.claims()) == 1


def test_the_run_takes_over_what_workers_finished_and_leaves_what_they_measure(url: str) -> None:
    kept: list[Trial] = []
    chosen = strategy(StrategyName.GRID, SMALL)[1]
    with record_of(url) as record, record_of(url, ELSEWHERE) as worker:
        run = Searcher(SPACE, chosen, [], record, kept.append)
        assert run.start(proposed(run))
        tell(run, SPACE.current)
        done, measured = proposed(run), TWO
        assert done != TWO
        assert worker.started(1, done)
        assert worker.started(1, measured)
        assert not run.start(done)  # it was proposed before the worker had it
        worker.hand_in(synthetic_trial(1, done, []))
        left = []
        while isinstance(proposal := run.next(), Proposal):
            assert run.start(proposal.candidate)
            left.append(tell(run, proposal.candidate).candidate)
    assert kept == run.history
    assert [t.candidate for t in kept if t.worker == ELSEWHERE] == [done]
    assert [t.number for t in run.history] == list(range(len(run.history)))
    assert run.history[1].candidate == done
    assert not {done, measured} & set(left)
    assert {*left, done, measured, SPACE.current} == {*SPACE.enumerate(), SPACE.current}


def test_resuming_takes_nothing_over_twice_and_fails_no_workers_trial(url: str) -> None:
    chosen = strategy(StrategyName.GRID, SMALL)[1]
    with record_of(url) as record, record_of(url, ELSEWHERE) as worker:
        run = Searcher(SPACE, chosen, [], record)
        run.start(proposed(run))
        tell(run, SPACE.current)
        worker.started(1, ONE)
        worker.hand_in(synthetic_trial(1, ONE, []))
        worker.started(1, TWO)
        run.next()
        history = list(run.history)
        with record_of(url) as again:
            resumed = Searcher(SPACE, chosen, history, again)
            assert resumed.next() == run.next()
            assert resumed.history == history
            assert len(again.claims()) == 3


def test_a_resumed_batch_passes_over_what_a_worker_measured(url: str) -> None:
    """A batch is made from the trials before it, whoever measured those within it."""
    space = space_of(
        {INSTANCES: {"int": [1, 6]}, "response_cache.size": {"choice": [False, "1MiB"]}}
    )

    class Listed(InOrder):
        at_once = 4

        def propose(self, number, history, taken):  # type: ignore[no-untyped-def]
            free = (c for c in space.enumerate() if c.key not in taken)
            return next((Proposal(c) for c in free), None)

    with (
        StudyRecord(url, "b", "run-1", space, Objective.goodput()) as record,
        StudyRecord(url, "b", "run-1", space, Objective.goodput(), ELSEWHERE) as worker,
    ):
        run = Searcher(space, Listed(), [], record)
        tell(run, proposed(run))
        first = proposed(run)
        run.start(first)
        stolen = run._batch[1].candidate
        worker.started(1, stolen)
        worker.hand_in(synthetic_trial(1, stolen, []))
        tell(run, first)
        following = proposed(run)
        assert stolen in {t.candidate for t in run.history}
        assert following not in {t.candidate for t in run.history}


class Waits:
    """Ends the search when a worker has waited so often."""

    def __init__(self, record: StudyRecord, times: int) -> None:
        self.record, self.left = record, times

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.record.close_to_workers()


def test_a_worker_waits_for_the_current_config_and_then_knows_all_trials(url: str) -> None:
    chosen = strategy(StrategyName.RANDOM, SMALL)[1]
    with record_of(url) as record, record_of(url, ELSEWHERE) as mine:
        record.open_to_workers({})
        worker = JoinedSearcher(SPACE, chosen, mine, 40, Waits(record, 2))
        assert worker.next() is None
        record.open_to_workers({})
        run = Searcher(SPACE, chosen, [], record)
        run.start(proposed(run))
        tell(run, SPACE.current)
        busy = proposed(run)
        run.start(busy)
        seen = set()
        for _ in range(3):
            candidate = proposed(worker)
            assert worker.start(candidate)
            tell(worker, candidate)
            seen.add(candidate.key)
        assert busy.key not in seen
        assert worker.history[0].candidate == SPACE.current
        assert len(worker.mine) == 3


def test_a_worker_leaves_the_current_config_to_the_run(url: str) -> None:
    first_guess = next(c for c in SPACE.enumerate() if c != SPACE.canonical(SPACE.current))
    seen = []

    class Leads:
        at_once = 1

        def __init__(self) -> None:
            self.designs = [first_guess]

        def propose(self, number, history, taken):  # type: ignore[no-untyped-def]
            seen.append(taken)

    with record_of(url) as record, record_of(url, ELSEWHERE) as mine:
        record.open_to_workers({})
        record.write([synthetic_trial(0, first_guess, [])])
        worker = JoinedSearcher(SPACE, Leads(), mine, 40, Waits(record, 2))
        assert worker.next() is None
    assert seen == [{first_guess.key, SPACE.canonical(SPACE.current).key}]


@pytest.mark.parametrize("answer", [None, Enough(0.001)])
def test_a_worker_with_nothing_to_do_asks_again_only_when_there_is_news(
    url: str, answer: Enough | None
) -> None:
    asked = []

    class Done(InOrder):
        at_once = 1

        def propose(self, number, history, taken):  # type: ignore[no-untyped-def]
            asked.append(len(history))
            return answer

    with record_of(url) as record, record_of(url, ELSEWHERE) as mine:
        record.open_to_workers({})
        record.write([synthetic_trial(0, SPACE.current, [])])
        worker = JoinedSearcher(SPACE, Done(), mine, 40, Waits(record, 3))
        assert worker.next() is None
    assert asked == [1]


def test_a_worker_claims_no_more_than_the_budget(url: str) -> None:
    chosen = strategy(StrategyName.RANDOM, SMALL)[1]
    with record_of(url) as record, record_of(url, ELSEWHERE) as mine:
        record.open_to_workers({})
        record.write([synthetic_trial(0, SPACE.current, [])])
        record.started(1, ONE)
        assert JoinedSearcher(SPACE, chosen, mine, 2, Waits(record, 1)).next() is None


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
def test_a_run_drops_a_forged_trial_with_a_note_and_goes_on(what: str, url: str) -> None:
    kept: list[Trial] = []
    told: list[str] = []
    with record_of(url) as record, record_of(url, ELSEWHERE) as worker:
        run = Searcher(
            SPACE, strategy(StrategyName.GRID, SMALL)[1], [], record, kept.append, told.append
        )
        assert run.start(proposed(run))
        tell(run, SPACE.current)
        assert worker.started(1, ONE)
        forge(worker, ONE, FORGED[what]())
        honest = synthetic_trial(2, TWO, [])
        assert worker.started(2, TWO)
        worker.hand_in(honest)
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


def test_a_worker_learns_nothing_from_a_forged_trial(url: str) -> None:
    told: list[str] = []
    with record_of(url) as run, record_of(url, ELSEWHERE) as worker:
        run.open_to_workers({})
        assert run.started(0, SPACE.current)
        run.write([synthetic_trial(0, SPACE.current, [])])
        assert worker.started(1, ONE)
        forge(worker, ONE, FORGED["a score that is text"]())
        joined = JoinedSearcher(
            SPACE, strategy(StrategyName.GRID, SMALL)[1], worker, 9, lambda: None, told.append
        )
        assert joined.next() is not None
        assert [t.candidate for t in joined.history] == [SPACE.current]
    assert len(told) == 1


@pytest.mark.parametrize("by_worker", [True, False])
def test_a_claim_on_what_the_run_must_measure_does_not_stop_it(by_worker: bool, url: str) -> None:
    with record_of(url) as record, record_of(url, ELSEWHERE if by_worker else None) as other:
        run = Searcher(SPACE, strategy(StrategyName.GRID, SMALL)[1], [], record)
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


def test_a_stranger_in_the_study_is_no_trial_of_the_run(url: str) -> None:
    import optuna

    with record_of(url) as record:
        for attributes in ({"run": "run-1"}, {"run": "run-1", "candidate": 3}, {}):
            bare = optuna.trial.create_trial(value=1.0, user_attrs=attributes)
            record._study.add_trial(bare)
        run = Searcher(SPACE, strategy(StrategyName.GRID, SMALL)[1], [], record)
        assert run.start(proposed(run))
        assert record.claims()[0].candidate_key == SPACE.current.key


def test_a_study_that_cannot_be_read_is_told_as_one(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: Any) -> Any:
        raise KeyError("value")

    with record_of(url) as record:
        monkeypatch.setattr(record._study, "get_trials", broken)
        with pytest.raises(EnvironmentNotReadyError, match="the study cannot be read"):
            record.claims()
