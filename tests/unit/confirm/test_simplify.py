from __future__ import annotations

from collections.abc import Callable

from synthetic import NO_ERRORS, P99_40MS, synthetic_server

from tuner.confirm.confirm import Row, Rules
from tuner.confirm.simplify import Simplified, Winner, simplified
from tuner.errors import DeployRefusedError
from tuner.score.capacity import LevelRange
from tuner.score.point import Point, judge_point
from tuner.space.candidate import Candidate
from tuner.spec.objective import Objective

COUNT = "instance_group.count"
BATCHING = "dynamic_batching"
DELAY = "dynamic_batching.max_queue_delay_microseconds"
CURRENT = Candidate({COUNT: 1, BATCHING: None})
FOUND = Candidate({COUNT: 2, BATCHING: True, DELAY: 500}, ("--cache-config=local,size=1024",))


class EmulatedBench:
    def __init__(self, capacity: Callable[[Candidate], float]) -> None:
        self.capacity = capacity
        self.candidate = CURRENT
        self.measured: list[Candidate] = []

    def deploy(self, candidate: Candidate, *, fresh: bool = False) -> object:
        assert fresh
        self.candidate = candidate
        return None

    def measure(self, level: float, seed: int) -> Point:
        self.measured.append(self.candidate)
        measurement = synthetic_server(level, self.capacity(self.candidate))
        return judge_point([P99_40MS, NO_ERRORS], measurement)


def simplify(bench: EmulatedBench, rows: list[Row] | None = None) -> Simplified:
    kept = [] if rows is None else rows
    points = tuple(judge_point([P99_40MS], synthetic_server(900, 1000)) for _ in range(3))
    rules = Rules(
        Objective.goodput(),
        LevelRange(1, 1e5),
        3,
        0.02,
        7,
        kept.append,
    )
    return simplified(bench, Winner(FOUND, 900, points), CURRENT, rules, lambda _: True)


def test_what_makes_no_difference_is_undone() -> None:
    result = simplify(EmulatedBench(lambda c: 1000 if c.fields[BATCHING] else 100))
    assert result.candidate == Candidate({COUNT: 1, BATCHING: True, DELAY: None})
    kept = {p.field: p.kept for p in result.tried}
    assert kept == {
        "--cache-config=local,size=1024": False,
        DELAY: False,
        COUNT: False,
    }  # without the batcher it would be the current config, which lost already
    assert len(result.points) == 3


def test_what_matters_stays_and_costs_one_measurement() -> None:
    rows: list[Row] = []
    bench = EmulatedBench(lambda c: 1000 if c == FOUND else 100)
    result = simplify(bench, rows)
    assert result.candidate == FOUND
    assert all(p.kept for p in result.tried)
    assert len(bench.measured) == len(rows) == 4
    for row in (p.to_json() for p in result.tried):
        assert row["difference"] < 0


def test_a_field_inside_an_absent_message_goes_with_it() -> None:
    bench = EmulatedBench(lambda c: 1000 if c.server_args else 100)
    result = simplify(bench)
    assert DELAY not in result.candidate.fields or result.candidate.fields[DELAY] is None
    assert result.candidate.fields[BATCHING] is None
    assert result.candidate.server_args == FOUND.server_args


def test_a_config_that_cannot_be_served_is_no_simplification() -> None:
    class Refusing(EmulatedBench):
        def deploy(self, candidate: Candidate, *, fresh: bool = False) -> object:
            raise DeployRefusedError("no")

    result = simplify(Refusing(lambda _: 1000))
    assert result.candidate == FOUND
    assert all(p.kept and p.without_change is None for p in result.tried)
    assert all(p.to_json()["difference"] is None for p in result.tried)


def test_the_current_config_itself_is_never_the_simpler_winner() -> None:
    only = Candidate({COUNT: 2, BATCHING: None})
    points = tuple(judge_point([P99_40MS], synthetic_server(900, 1000)) for _ in range(2))
    rules = Rules(Objective.goodput(), LevelRange(1, 1e5), 2, 0.02, 7, lambda _: None)
    bench = EmulatedBench(lambda _: 1000)
    result = simplified(bench, Winner(only, 900, points), CURRENT, rules, lambda _: True)
    assert result.candidate == only
    assert bench.measured == []
