"""Where measuring begins on a config of which nothing is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders.candidates import candidate_of
from builders.emulated import EmulatedBench, a_session
from builders.measurements import NO_ERRORS, P99_40MS

from tuner.bench.session import Session
from tuner.check.rounds import highest_that_holds, rough_capacity
from tuner.errors import LoadFailedError, ModelFailsError
from tuner.measurement.measurement import Arrivals
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan
from tuner.search.first_load import First, first_level
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


def asked(bench: EmulatedBench) -> list[int]:
    """With how many at once, one at a time left out."""
    return [many for _, many in bench.looks if many > 1]


@pytest.mark.parametrize(
    ("latency_s", "many", "first"),
    [
        (0.01, [100], 720.0),
        (0.0001, [256], 720.0),
        (0.26, [16], 720.0),
        (1.0, [16], 720.0),
        (10.0, [6, 16], 720.0),
        (20.0, [4, 16], 720.0),
    ],
)
def test_it_begins_below_where_the_server_saturates(
    latency_s: float, many: list[int], first: float
) -> None:
    bench = Answering(latency_s)
    assert first_level(bench, POISSON, 1).level == pytest.approx(first)
    assert asked(bench) == many


def test_a_server_that_refuses_many_is_asked_as_one_request_takes() -> None:
    notes: list[str] = []
    assert first_level(Answering(0.01, refuses=True), POISSON, 1, notes.append).level == 60.0
    (note,) = notes
    assert note.endswith("; 100 at once gave no result (the queue is full); the first load is 60/s")


def test_a_model_that_fails_with_many_at_once_is_not_asked_further() -> None:
    class FailsOnBatches(Answering):
        def many_at_once(self, concurrency: int, seed: int) -> float:
            raise ModelFailsError("the model failed 25 of 100 requests: shapes differ")

    with pytest.raises(ModelFailsError, match="shapes differ"):
        first_level(FailsOnBatches(0.01), POISSON, 1)


@pytest.mark.parametrize(
    ("latency_s", "clients"), [(0.001, 32.0), (0.01, 3.0), (0.025, 1.0), (0.04, 1.0)]
)
def test_a_closed_loop_begins_with_the_clients_that_one_instance_would_serve_in_time(
    latency_s: float, clients: float
) -> None:
    bench, plan = Answering(latency_s), LoadPlan(Arrivals.CLOSED, None, LEVELS)
    assert first_level(bench, plan, 1, bound=P99_40MS) == First(clients)
    assert asked(bench) == []


def test_a_closed_loop_without_a_bound_begins_with_two_clients() -> None:
    plan = LoadPlan(Arrivals.CLOSED, None, LEVELS)
    assert first_level(Answering(0.01), plan, 1) == First(2.0)


def test_a_closed_loop_whose_every_request_takes_too_long_is_looked_at_with_one_client() -> None:
    notes: list[str] = []
    plan = LoadPlan(Arrivals.CLOSED, None, LEVELS)
    first = first_level(Answering(2.5), plan, 1, notes.append, P99_40MS)
    assert first == First(1.0, lowest=True)
    (note,) = notes
    assert note.startswith("one request at a time takes 2.5 s: more than p99_latency <= 40ms")
    assert note.endswith("with any number of clients")


def test_where_one_request_alone_is_too_slow_only_the_lowest_load_is_worth_a_look() -> None:
    notes: list[str] = []
    bench = Answering(0.05)
    assert first_level(bench, POISSON, 1, notes.append, P99_40MS) == First(
        pytest.approx(6.0), lowest=True
    )
    assert asked(bench) == []
    assert notes == [
        "one request at a time takes 50 ms: more than p99_latency <= 40ms allows, under any load"
    ]
    assert not first_level(Answering(0.04), POISSON, 1, notes.append, P99_40MS).lowest
    assert notes[-1] == (
        "one request at a time takes 40 ms; with 25 at once it answers 900/s; "
        "the first load is 720/s"
    )


class Serving(EmulatedBench):
    """One config, on one server for good."""

    def __init__(self, capacity: float, alone_s: float = 0.01, **more: Any) -> None:
        super().__init__(lambda _: capacity, alone_s=alone_s, weather=0.0, **more)
        self.deploy(candidate_of({}))

    @property
    def levels(self) -> list[float]:
        return [a.level for a in self.asked]


def session_on(bench: Serving, plan: LoadPlan) -> Session:
    spec = {"model": "m", "repository": "r", "slo": ["p99_latency <= 40ms"], "space": {}}
    return a_session(bench, Spec.model_validate(spec), candidate_of({}), plan)


def rough(bench: Serving) -> float:
    return rough_capacity(session_on(bench, POISSON), 7)


@pytest.mark.parametrize("capacity", [80.0, 200.0, 700.0])
def test_a_rough_capacity_is_near_the_true_one_after_four_loads(capacity: float) -> None:
    bench = Serving(capacity)
    assert rough(bench) == pytest.approx(capacity, rel=0.15)
    assert len(bench.levels) <= 4
    assert set(bench.seeds) | {seed for seed, _ in bench.looks} == {7}


def test_a_model_too_slow_for_a_verdict_gets_no_load_at_all() -> None:
    bench, slow = Serving(1.0), LoadPlan(Arrivals.POISSON, None, LevelRange(10.0, 1e5))
    with pytest.raises(LoadFailedError, match="Set it to"):
        rough_capacity(session_on(bench, slow), 7)
    assert bench.levels == []


def test_where_no_load_tried_holds_the_rounds_begin_at_the_lowest() -> None:
    bench = Serving(100.0, slos=(replace(P99_40MS, bound=1_000.0), NO_ERRORS))
    assert rough(bench) == min(bench.levels)


@pytest.mark.parametrize(
    ("capacity", "held", "asked_for"),
    [
        (400.0, 320.0, [80.0, 160.0, 320.0, 640.0]),
        (20.0, 80.0, [80.0]),
        (2000.0, 1280.0, [80.0, 160.0, 320.0, 640.0, 1280.0]),
    ],
)
def test_of_listed_loads_the_last_before_a_miss_holds(
    capacity: float, held: float, asked_for: list[float]
) -> None:
    bench = Serving(capacity)
    assert highest_that_holds(bench, (80.0, 160.0, 320.0, 640.0, 1280.0), 7) == held
    assert bench.levels == asked_for
    assert set(bench.seeds) == {7}
