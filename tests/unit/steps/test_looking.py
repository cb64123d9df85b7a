"""Where measuring begins on a config of which nothing is known."""

from __future__ import annotations

import pytest
from emulated import EmulatedBench

from tuner.bench.evaluate import LoadPlan
from tuner.errors import LoadFailedError
from tuner.load.measurement import Arrivals
from tuner.score.capacity import LevelRange
from tuner.space.candidate import Candidate
from tuner.steps.looking import FIRST_CONCURRENCY, first_level

LEVELS = LevelRange(0.1, 1e5)
POISSON = LoadPlan(Arrivals.POISSON, None, LEVELS)


class Answering(EmulatedBench):
    """Takes so long for one request; answers 900/s with many, or refuses them."""

    def __init__(self, latency_s: float, refuses: bool = False) -> None:
        super().__init__(lambda _: 900.0 / 1.1, alone_s=latency_s)
        self.refuses = refuses
        self.deploy(Candidate({}))

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
    [(0.01, [100], 720.0), (0.0001, [256], 720.0), (0.5, [], 1.2), (0.26, [4], 720.0)],
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
    assert note.endswith("; 100 at once gave no result (the queue is full); first 60/s")


def test_a_closed_loop_needs_no_look() -> None:
    bench = Answering(0.01)
    plan = LoadPlan(Arrivals.CLOSED, None, LEVELS)
    assert first_level(bench, plan, 1).level == FIRST_CONCURRENCY
    assert asked(bench) == []
