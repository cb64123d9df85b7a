from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from synthetic import NO_ERRORS, P99_40MS, synthetic_measurement, synthetic_server

from tuner.confirm.confirm import Row, Rules
from tuner.confirm.simplify import Simplified, Winner, simplified
from tuner.errors import DeployRefusedError
from tuner.score.capacity import LevelRange
from tuner.score.point import Point, judge_point
from tuner.space.cache import server_args, split_args
from tuner.space.candidate import Candidate, FieldValue
from tuner.spec.objective import Goal, Objective
from tuner.spec.slo import Metric

COUNT = "instance_group.count"
BATCHING = "dynamic_batching"
DELAY = "dynamic_batching.max_queue_delay_microseconds"
ENABLE = "response_cache.enable"
CURRENT = Candidate({COUNT: 1, BATCHING: None, ENABLE: None})
FOUND = Candidate(
    {COUNT: 2, BATCHING: True, DELAY: 500, ENABLE: True}, ("--cache-config=local,size=1024",)
)


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
    assert result.candidate == Candidate({COUNT: 1, BATCHING: True, DELAY: None, ENABLE: None})
    kept = {p.field: p.kept for p in result.tried}
    assert kept == {
        "response_cache.size off": False,
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


def test_both_are_told_at_the_load_both_were_held_to() -> None:
    points = tuple(judge_point([P99_40MS], synthetic_server(900, 1000)) for _ in range(3))
    rules = Rules(Objective.goodput(), LevelRange(1, 1e5), 3, 0.02, 7, lambda _: None)
    bench = EmulatedBench(lambda c: 1000 if c.fields[COUNT] == 2 else 800)
    found = Candidate({**CURRENT.fields, COUNT: 2, DELAY: 5})
    result = simplified(bench, Winner(found, 870, points), CURRENT, rules, lambda _: True)
    told = {p.field: (p.with_change, p.without_change, p.kept) for p in result.tried}
    assert told[DELAY] == (870.0, 870.0, False)
    assert told[COUNT][0] == 870.0
    assert told[COUNT][2]


def test_small_losses_of_several_fields_do_not_add_up() -> None:
    class Slower(EmulatedBench):
        """Each change undone costs 1.5 % of a latency that is minimised."""

        def measure(self, level: float, seed: int) -> Point:
            undone = sum(self.candidate.fields[name] != 9 for name in "abc")
            return judge_point([P99_40MS], synthetic_measurement(level, 20e3 * 1.015**undone))

    objective = Objective(Goal.MINIMIZE, Metric.P99_LATENCY, 300.0, "minimize p99_latency at 300/s")
    points = tuple(judge_point([P99_40MS], synthetic_measurement(300, 20e3)) for _ in range(3))
    rules = Rules(objective, None, 3, 0.02, 7, lambda _: None)
    current, found = Candidate(dict.fromkeys("abc", 1)), Candidate(dict.fromkeys("abc", 9))
    bench = Slower(lambda _: 1)
    result = simplified(bench, Winner(found, 300, points), current, rules, lambda _: True)
    assert [p.kept for p in result.tried] == [False, True, True]


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
    only = Candidate({COUNT: 2, BATCHING: None, ENABLE: None})
    points = tuple(judge_point([P99_40MS], synthetic_server(900, 1000)) for _ in range(2))
    rules = Rules(Objective.goodput(), LevelRange(1, 1e5), 2, 0.02, 7, lambda _: None)
    bench = EmulatedBench(lambda _: 1000)
    result = simplified(bench, Winner(only, 900, points), CURRENT, rules, lambda _: True)
    assert result.candidate == only
    assert bench.measured == []


MIB = 1 << 20
SIZES = tuple(MIB << n for n in range(7))  # 1 to 64 MiB


def with_cache(size: int | None, **fields: FieldValue) -> Candidate:
    return Candidate({**fields, ENABLE: True if size else None}, server_args(size))


def least_cache(
    capacity_of: Callable[[int], float],
    *,
    winner: int = SIZES[-1],
    sizes: Sequence[int] = SIZES,
    current: Candidate = CURRENT,
    allowed: Callable[[Candidate], bool] = lambda _: True,
    rounds: int = 3,
) -> tuple[Simplified, EmulatedBench, list[Row]]:
    """The winner stood 97 % of its capacity; ``capacity_of`` size 0 is that without a cache."""
    rows: list[Row] = []
    bench = EmulatedBench(lambda c: capacity_of(split_args(c.server_args)[1] or 0))
    stood = 0.97 * capacity_of(winner)
    points = tuple(
        judge_point([P99_40MS, NO_ERRORS], synthetic_server(stood, capacity_of(winner)))
        for _ in range(rounds)
    )
    rules = Rules(Objective.goodput(), LevelRange(1, 1e5), rounds, 0.02, 7, rows.append)
    proved = Winner(with_cache(winner), 0.97 * stood, points)
    return simplified(bench, proved, current, rules, allowed, sizes), bench, rows


def size_of(result: Simplified) -> int | None:
    return split_args(result.candidate.server_args)[1]


@pytest.mark.parametrize("enough", SIZES)
def test_the_smallest_cache_that_serves_as_much_is_chosen(enough: int) -> None:
    result, bench, rows = least_cache(lambda size: 1000 if size >= enough else 900)
    assert size_of(result) == enough
    assert result.candidate.fields[ENABLE] is True
    assert len(bench.measured) == len(rows) <= 1 + 3 * 3
    assert result.tried[0].field == "response_cache.size off"
    assert result.tried[0].kept


@pytest.mark.parametrize("per_step", [0.002, 0.005, 0.01, 0.03])
def test_the_choice_is_within_two_percent_whatever_the_curve(per_step: float) -> None:
    """Every doubling serves a little more: small losses do not add up."""

    def capacity(size: int) -> float:
        return 1000.0 * (1 + per_step) ** SIZES.index(size) if size else 500.0

    result, _, _ = least_cache(capacity)
    chosen = size_of(result)
    assert chosen is not None
    best = capacity(SIZES[-1])
    # the winner stood 97 % of its capacity and the sizes 98 % of that
    assert capacity(chosen) >= 0.97 * 0.98 * best
    smaller = [s for s in SIZES if s < chosen]
    assert not smaller or capacity(smaller[-1]) < 0.98 * best


def test_a_cache_that_brings_nothing_goes() -> None:
    result, _, rows = least_cache(lambda _: 1000, current=Candidate({ENABLE: None, COUNT: 4}))
    assert size_of(result) is None
    assert result.candidate == with_cache(None)
    assert [p.kept for p in result.tried if p.field.startswith("response_cache")] == [False]
    assert len(rows) == 3


def test_no_cache_is_measured_even_when_it_is_the_current_config() -> None:
    current = with_cache(None)
    result, bench, _ = least_cache(lambda size: 1000 if size else 700, current=current)
    assert bench.measured[0] == current
    off = result.tried[0]
    assert (off.field, off.kept) == ("response_cache.size off", True)
    assert off.without_change is not None
    assert off.with_change is not None
    assert off.without_change < off.with_change
    assert size_of(result) == SIZES[0]


def test_no_cache_is_in_the_table_even_when_triton_would_not_load_it() -> None:
    result, bench, _ = least_cache(lambda _: 1000, sizes=(), allowed=lambda c: bool(c.server_args))
    assert bench.measured == []
    (off,) = result.tried
    assert (off.field, off.kept, off.without_change) == ("response_cache.size off", True, None)


def test_each_size_tried_is_in_the_table() -> None:
    result, _, _ = least_cache(lambda size: 1000 if size >= 8 * MIB else 900)
    assert [(p.field, p.kept) for p in result.tried] == [
        ("response_cache.size off", True),
        ("response_cache.size 8 MiB", False),
        ("response_cache.size 2 MiB", True),
        ("response_cache.size 4 MiB", True),
    ]


def test_a_winner_without_a_cache_is_left_alone() -> None:
    current = with_cache(SIZES[0])
    points = tuple(judge_point([P99_40MS], synthetic_server(900, 1000)) for _ in range(2))
    rules = Rules(Objective.goodput(), LevelRange(1, 1e5), 2, 0.02, 7, lambda _: None)
    bench = EmulatedBench(lambda c: 100 if c.server_args else 1000)
    winner = Winner(with_cache(None), 900, points)
    result = simplified(bench, winner, current, rules, lambda _: True, SIZES)
    assert result.candidate == with_cache(None)


def test_a_minimised_metric_keeps_the_smallest_cache_within_two_percent() -> None:
    values = (30e3, 25e3, 22e3, 20.6e3, 20.3e3, 20.1e3, 20e3, 20e3)
    p99_us = dict(zip((0, *SIZES), values, strict=True))

    class AtOneLoad(EmulatedBench):
        def measure(self, level: float, seed: int) -> Point:
            self.measured.append(self.candidate)
            size = split_args(self.candidate.server_args)[1] or 0
            return judge_point([P99_40MS, NO_ERRORS], synthetic_measurement(level, p99_us[size]))

    points = tuple(judge_point([P99_40MS], synthetic_measurement(300, 20e3)) for _ in range(3))
    objective = Objective(Goal.MINIMIZE, Metric.P99_LATENCY, 300.0, "minimize p99_latency at 300/s")
    rules = Rules(objective, None, 3, 0.02, 7, lambda _: None)
    winner = Winner(with_cache(SIZES[-1]), 300, points)
    result = simplified(AtOneLoad(lambda _: 1), winner, CURRENT, rules, lambda _: True, SIZES)
    assert size_of(result) == 8 * MIB  # 20.3 ms; 20.6 ms is 3 % more than 20 ms
