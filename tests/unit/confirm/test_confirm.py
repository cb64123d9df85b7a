from __future__ import annotations

import random

import pytest
from synthetic import NO_ERRORS, P99_40MS, synthetic_server

from tuner.confirm.confirm import (
    HEADROOM,
    STEP_DOWN,
    Confirmation,
    Entrant,
    Outcome,
    Role,
    Row,
    Rules,
    confirm,
)
from tuner.confirm.statistics import paired_ratio
from tuner.score.capacity import LevelRange
from tuner.score.point import Point, judge_point
from tuner.space.candidate import Candidate
from tuner.spec.objective import Objective

CURRENT = Candidate({"instance_group.count": 1})
OTHER = Candidate({"instance_group.count": 2})


class EmulatedBench:
    """Serves each candidate up to its capacity, which wobbles by ``noise`` from round to round."""

    def __init__(self, capacity: dict[Candidate, float], noise: float = 0.0, seed: int = 0) -> None:
        self.capacity = capacity
        self.noise = noise
        self.random = random.Random(seed)
        self.deployed: Candidate | None = None
        self.fresh_starts = 0

    def deploy(self, candidate: Candidate, *, fresh: bool = False) -> object:
        self.deployed = candidate
        self.fresh_starts += fresh
        return None

    def measure(self, level: float, seed: int) -> Point:
        assert self.deployed is not None
        wobble = 1 + self.noise * self.random.uniform(-1, 1)
        capacity = self.capacity[self.deployed] * wobble
        return judge_point([P99_40MS, NO_ERRORS], synthetic_server(level, capacity))


def duel(
    bench: EmulatedBench, current: float | None, finalist: float, rows: list[Row] | None = None
) -> Confirmation:
    kept = [] if rows is None else rows
    return confirm(
        bench,
        Entrant(CURRENT, current, None if current is None else current * 1.04),
        Entrant(OTHER, finalist, finalist * 1.04),
        Rules(
            Objective.goodput(),
            LevelRange(1, 1e5),
            3,
            0.02,
            100,
            kept.append,
        ),
    )


def test_a_much_better_config_is_confirmed_with_its_interval() -> None:
    result = duel(EmulatedBench({CURRENT: 100, OTHER: 1000}), 98, 980)
    assert result.outcome is Outcome.CONFIRMED
    assert result.ratio is not None
    assert result.ratio.low < 10 < result.ratio.high
    assert result.ratio.estimate == pytest.approx(10, rel=0.05)


def test_every_side_is_measured_on_a_fresh_server_in_alternating_order() -> None:
    rows: list[Row] = []
    bench = EmulatedBench({CURRENT: 100, OTHER: 1000})
    duel(bench, 98, 980, rows)
    assert bench.fresh_starts == 6
    firsts = [r.role for r in rows if r.order == 0]
    assert firsts == [Role.CURRENT, Role.CANDIDATE, Role.CURRENT]


@pytest.mark.parametrize("seed", range(20))
def test_the_same_capacity_under_another_name_is_never_confirmed(seed: int) -> None:
    bench = EmulatedBench({CURRENT: 1000, OTHER: 1000}, noise=0.03, seed=seed)
    # The search was lucky with the one and unlucky with the other.
    assert duel(bench, 940, 1010).outcome is not Outcome.CONFIRMED


def test_a_finalist_that_was_lucky_is_confirmed_at_a_lower_load() -> None:
    result = duel(EmulatedBench({CURRENT: 100, OTHER: 1000}), 98, 1080)
    assert result.outcome is Outcome.CONFIRMED
    assert result.finalist.level == pytest.approx(1080 * HEADROOM * STEP_DOWN, rel=1e-3)


def test_a_finalist_that_misses_the_slo_again_is_not_feasible() -> None:
    result = duel(EmulatedBench({CURRENT: 100, OTHER: 300}), 98, 1000)
    assert result.outcome is Outcome.NOT_FEASIBLE


def test_a_finalist_that_stands_no_more_than_the_current_config_is_not_better() -> None:
    result = duel(EmulatedBench({CURRENT: 900, OTHER: 920}), 890, 1000)
    assert result.outcome in (Outcome.NOT_BETTER, Outcome.NOT_FEASIBLE)


def test_a_lower_load_counts_in_the_later_rounds_too() -> None:
    rows: list[Row] = []
    duel(EmulatedBench({CURRENT: 100, OTHER: 1000}), 98, 1080, rows)
    levels = [r.point.measurement.load.level for r in rows if r.role is Role.CANDIDATE]
    assert levels[0] > levels[1] == levels[2] == levels[3]


def test_when_the_current_config_meets_no_slo_there_is_no_ratio() -> None:
    result = duel(EmulatedBench({OTHER: 1000}), None, 980)
    assert result.outcome is Outcome.CONFIRMED
    assert result.ratio is None
    assert result.current_points == ()


def test_paired_ratio_of_equal_rounds_is_one_with_no_width() -> None:
    ratio = paired_ratio([5, 5, 5], [5, 5, 5])
    assert (ratio.low, ratio.estimate, ratio.high) == pytest.approx((1, 1, 1))


def test_paired_ratio_widens_with_the_spread() -> None:
    narrow = paired_ratio([10, 10.1, 9.9], [5, 5, 5])
    wide = paired_ratio([10, 14, 7], [5, 5, 5])
    assert wide.high / wide.low > narrow.high / narrow.low > 1


def test_paired_ratio_refuses_unpaired_rounds() -> None:
    with pytest.raises(ValueError, match="as many"):
        paired_ratio([1.0], [1.0, 2.0])
