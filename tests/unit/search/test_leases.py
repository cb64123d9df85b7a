"""Claims of workers that died or were cut off, and a storage that is out of reach for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from builders.spaces import INSTANCES, space_of
from builders.surface import strategy, synthetic_trial
from sqlalchemy.exc import OperationalError, ProgrammingError

from tuner.score.trial import Worker
from tuner.search.searcher import JoinedSearcher
from tuner.search.study import storage
from tuner.search.study.leases import BEAT_S, GRACE_S
from tuner.search.study.record import StudyRecord
from tuner.spec.model import StrategyName
from tuner.spec.slo import Objective

SMALL = {INSTANCES: {"int": [1, 3]}}
SPACE = space_of(SMALL)
ONE, TWO = [c for c in SPACE.enumerate() if c != SPACE.canonical(SPACE.current)]
WORKER = Worker("box", "1")
CLOCK_S = count(1000.0, BEAT_S)
POSTGRES = "postgresql+psycopg://tuner:hunter2@db/optuna"
LOST = OperationalError("SELECT", {}, Exception("no route to tuner:hunter2@db"))
WRONG = ProgrammingError("SELECT", {}, Exception("no such table"))


def record_of(url: str, worker: Worker | None = None) -> StudyRecord:
    return StudyRecord(url, "m", "run-1", SPACE, Objective.goodput(), worker)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'study.db'}"


@pytest.fixture
def run(url: str) -> Iterator[StudyRecord]:
    with record_of(url) as record:
        yield record


@pytest.fixture
def worker(url: str) -> Iterator[StudyRecord]:
    with record_of(url, WORKER) as record:
        yield record


def watch(*records: StudyRecord, for_s: float) -> None:
    """Each looks at every interval, as its thread does."""
    for now_s in islice(CLOCK_S, int(for_s / BEAT_S) + 2):
        for record in records:
            record._leases.look(now_s)


def claimed(record: StudyRecord) -> list[str]:
    return [claim.candidate_key for claim in record.claims()]


def test_a_dead_workers_claim_is_free_once_and_a_living_ones_and_the_runs_own_are_kept(
    url: str, run: StudyRecord, worker: StudyRecord
) -> None:
    said: list[str] = []
    current = SPACE.current.key
    with record_of(url, WORKER) as dead, record_of(url) as other:
        run._note = other._note = said.append
        assert run.started(0, SPACE.current)
        assert dead.started(1, ONE)
        assert worker.started(1, TWO)
        dead._leases.look(0.0)
        watch(run, worker, other, for_s=GRACE_S / 2)
        list(islice(CLOCK_S, 1000))  # nobody looked: the storage may have been out of reach
        watch(run, worker, other, for_s=GRACE_S / 2)
        assert claimed(run) == [current, ONE.key, TWO.key]
        watch(run, worker, other, for_s=GRACE_S)
        assert claimed(run) == claimed(other) == [current, TWO.key]
        assert said == ["no sign any more of the worker on box, GPUs 1: its config is free again"]
        assert run.started(1, ONE)
        dead.given_up(ONE)
    assert claimed(run) == [current, TWO.key, ONE.key]


@pytest.mark.parametrize("odd", ["box", [1], None, {}, {"host": "box"}])
def test_a_claim_of_an_odd_worker_is_freed_and_told_and_stops_no_look(
    odd: Any, run: StudyRecord, worker: StudyRecord
) -> None:
    said: list[str] = []
    run._note = said.append
    assert worker.started(0, ONE)
    assert worker.started(0, TWO)
    first = min(worker._open.values())
    run._storage.set_trial_user_attr(first, "worker", odd)
    watch(run, for_s=2 * GRACE_S)
    assert claimed(run) == []
    assert sorted("box, GPUs 1: " in text for text in said) == [False, True]


@pytest.mark.parametrize("taken", [True, False])
def test_a_worker_that_was_cut_off_hands_in_what_nobody_else_has(
    taken: bool, url: str, run: StudyRecord, worker: StudyRecord
) -> None:
    notes: list[str] = []
    chosen = strategy(StrategyName.GRID, SMALL)[1]
    joined = JoinedSearcher(SPACE, chosen, worker, 9, lambda: None, notes.append)
    assert joined.start(ONE)
    watch(run, for_s=GRACE_S)
    assert claimed(run) == []
    with record_of(url, WORKER) as other:
        assert not taken or other.started(1, ONE)
        joined.tell(synthetic_trial(1, ONE, []))
        assert not taken or other.hand_in(synthetic_trial(1, ONE, []))
    (claim,) = run.claims()
    assert claim.result is not None
    assert (len(joined.mine), len(notes)) == ((0, 1) if taken else (1, 0))


@pytest.mark.parametrize(
    "case",
    [
        (POSTGRES, LOST, 60.0, 60.0),
        (POSTGRES, LOST, 1e6, storage.RECONNECT_S + storage.RETRY_S),
        (POSTGRES, WRONG, 60.0, 0.0),
        ("sqlite:///study.db", LOST, 60.0, 0.0),
    ],
)
def test_a_database_that_is_out_of_reach_is_waited_for_but_not_forever(
    case: tuple[str, Exception, float, float], run: StudyRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, cause, lasts_s, waits_s = case
    slept, said = list[float](), list[str]()
    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)

    def trials() -> list[Any]:
        if sum(slept) >= lasts_s:
            return []
        raise optuna.exceptions.StorageInternalError("commit") from cause

    monkeypatch.setattr(storage, "time", clock)
    monkeypatch.setattr(run, "_trials", trials)
    run.reconnection = storage.Reconnection(address, said.append)
    for _ in range(2):  # the second time, what is out of reach is known
        fails = waits_s < lasts_s
        with pytest.raises(optuna.exceptions.StorageInternalError) if fails else nullcontext():
            assert run.claims() == []
        assert sum(slept) == waits_s
    assert len(said) == (1 if waits_s else 0)
    assert "hunter2" not in "".join(said)
