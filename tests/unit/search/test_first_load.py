"""Where measuring begins on a config of which nothing is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders.candidates import candidate_of
from builders.emulated import EmulatedBench, a_session
from builders.measurements import NO_ERRORS, P99_40MS
from hypothesis import given
from hypothesis import strategies as st

from tuner.check.rounds import highest_that_holds, rough_capacity
from tuner.errors import LoadFailedError, ModelFailsError
from tuner.measurement.measurement import Arrivals
from tuner.meter.session import Session
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan
from tuner.search.first_load import first_level
from tuner.spec.model import Spec

LEVELS = LevelRange(0.1, 1e5)
POISSON = LoadPlan(Arrivals.POISSON, None, LEVELS)


class Answering(EmulatedBench):
    """Takes so long for one request; answers 900/s with many, or refuses them."""

    def __init__(self, latency_s: float, refuses: bool = False) -> None:
        super().__init__(lambda _: 900.0 / 1.1, alone_s=latency_s)
        self.refuses = refuses
        self.deploy(candidate_of({}))

    def many_at_once(self, concurrency: int, seed: int) -> float:
        answered = super().many_at_once(concurrency, seed)
        if self.refuses:
            raise LoadFailedError("the queue is full")
        return answered


def test_server_that_refuses_concurrency_starts_at_the_rate_of_one_request() -> None:
    notes: list[str] = []
    assert first_level(Answering(0.01, refuses=True), POISSON, 1, notes.append).level == 60.0
    assert len(notes) == 1


def test_model_that_fails_under_concurrency_gets_no_more_first_calls() -> None:
    class FailsOnBatches(Answering):
        def many_at_once(self, concurrency: int, seed: int) -> float:
            raise ModelFailsError("the model failed 25 of 100 requests: shapes differ")

    with pytest.raises(ModelFailsError, match="shapes differ"):
        first_level(FailsOnBatches(0.01), POISSON, 1)


class Serving(EmulatedBench):
    """One config, on one server for good."""

    def __init__(self, capacity: float, alone_s: float = 0.01, **more: Any) -> None:
        super().__init__(lambda _: capacity, alone_s=alone_s, weather=0.0, **more)
        self.deploy(candidate_of({}))

    @property
    def levels(self) -> list[float]:
        return [a.level for a in self.loads]


def session_on(bench: Serving, plan: LoadPlan) -> Session:
    spec = {"model": "m", "repository": "r", "slo": ["p99_latency <= 40ms"], "space": {}}
    return a_session(bench, Spec.model_validate(spec), candidate_of({}), plan)


def rough(bench: Serving) -> float:
    return rough_capacity(session_on(bench, POISSON), 7)


def test_a_model_too_slow_for_a_verdict_gets_no_load_at_all() -> None:
    bench, slow = Serving(1.0), LoadPlan(Arrivals.POISSON, None, LevelRange(10.0, 1e5))
    with pytest.raises(LoadFailedError, match="Set it to"):
        rough_capacity(session_on(bench, slow), 7)
    assert bench.levels == []


def test_where_no_load_tried_holds_the_rounds_begin_at_the_lowest() -> None:
    bench = Serving(100.0, slos=(replace(P99_40MS, bound=1_000.0), NO_ERRORS))
    assert rough(bench) == min(bench.levels)


@given(st.floats(50.0, 5e3))
def test_a_rough_capacity_is_near_the_true_one_after_four_loads(capacity: float) -> None:
    bench = Serving(capacity)
    assert rough(bench) == pytest.approx(capacity, rel=0.15)
    assert len(bench.levels) <= 4
    assert set(bench.seeds) | {seed for seed, _ in bench.looks} == {7}


@given(st.floats(1e-4, 30.0), st.sampled_from([Arrivals.POISSON, Arrivals.CLOSED]), st.booleans())
def test_no_load_is_begun_with_that_was_seen_to_be_too_much(
    alone_s: float, arrivals: Arrivals, bounded: bool
) -> None:
    """What is looked at, and what is said of it: `tests/golden/printed/first-loads.txt`."""
    bench, plan = Answering(alone_s), LoadPlan(arrivals, None, LEVELS)
    first = first_level(bench, plan, 1, bound=P99_40MS if bounded else None)
    assert LEVELS.lowest <= first.level or first.lowest
    assert first.lowest == (bounded and alone_s > 0.04)
    assert len(bench.looks) <= 3
    if arrivals is Arrivals.POISSON:
        assert first.level <= 0.9 * 900.0
    elif bounded:
        assert first.level * alone_s <= 0.04 or first.level == 1.0


@pytest.mark.parametrize(
    ("capacity", "highest", "levels"),
    [
        (400.0, 320.0, [80.0, 160.0, 320.0, 640.0]),
        (20.0, 80.0, [80.0]),
        (2000.0, 1280.0, [80.0, 160.0, 320.0, 640.0, 1280.0]),
    ],
)
def test_of_listed_loads_the_last_before_a_miss_holds(
    capacity: float, highest: float, levels: list[float]
) -> None:
    bench = Serving(capacity)
    assert highest_that_holds(bench, (80.0, 160.0, 320.0, 640.0, 1280.0), 7) == highest
    assert bench.levels == levels
    assert set(bench.seeds) == {7}
