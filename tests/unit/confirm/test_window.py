"""How long the windows are in which a claim is made."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.candidates import candidate_of
from builders.emulated import FreshBench
from builders.measurements import P99_40MS, synthetic_measurement

from tuner.confirm.confirm import Entrant, Rules, confirm
from tuner.confirm.soak import claim_window_s
from tuner.measurement.measurement import Course
from tuner.score.capacity import LevelRange
from tuner.score.point import Point, judge_point
from tuner.space.candidate import Candidate
from tuner.spec.metrics import THROUGHPUT
from tuner.spec.slo import Goal, Objective, Slo

CURRENT, OTHER = (candidate_of({"instance_group.count": n}) for n in (1, 2))


def searched(power: float, relaxation_s: float, *levels: float) -> list[Point]:
    """A server that sustains 100/s, and whose p99 rises with that power of the load."""
    course = Course(growth=0.0, growth_error=0.1, relaxation_s=relaxation_s)
    found = [synthetic_measurement(v, 40e3 * (v / 100.0) ** power) for v in levels]
    return [judge_point([P99_40MS], replace(m, course=course)) for m in found]


def test_a_queue_that_remembers_long_gets_long_windows_and_a_steep_one_short_ones() -> None:
    slow = claim_window_s(searched(5.0, 0.2, 96, 104), [P99_40MS])
    assert slow == pytest.approx(2 * 0.2 * (2.16 / (0.08 * 5.0)) ** 2, rel=0.01)
    assert claim_window_s(searched(5.0, 0.1, 96, 104), [P99_40MS]) == pytest.approx(slow / 2)
    assert claim_window_s(searched(10.0, 0.2, 98, 102), [P99_40MS]) == pytest.approx(slow / 4)


def test_where_the_search_does_not_tell_no_window_is_longer() -> None:
    assert claim_window_s(searched(5.0, 0.2, 96), [P99_40MS]) == 0.0  # no slope
    assert claim_window_s(searched(5.0, 0.2, 20, 30), [P99_40MS]) == 0.0  # far from the bound
    throughput = Slo(THROUGHPUT, 10.0, "throughput >= 10/s")
    assert claim_window_s(searched(5.0, 0.2, 96, 104), [throughput]) == 0.0
    older = [replace(p.measurement, course=None) for p in searched(5.0, 0.2, 96, 104)]
    assert claim_window_s([judge_point([P99_40MS], m) for m in older], [P99_40MS]) == 0.0


class Windows(FreshBench):
    """Keeps how long each config was measured."""

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        self.lengths: dict[Candidate, set[float]] = getattr(self, "lengths", {})
        self.lengths.setdefault(self.candidate, set()).add(least_s)
        return super().measure(level, seed)


@pytest.mark.parametrize("soaked", [False, True])
@pytest.mark.parametrize(("current", "own_s"), [(300.0, 9.0), (100.0, 0.0)])
def test_configs_that_are_compared_closely_have_one_window(
    current: float, own_s: float, soaked: bool
) -> None:
    """One that sustains a third of the other's load has no claim that would need its window, and
    that of the other is soaked.
    """
    bench = Windows({CURRENT: current, OTHER: 320.0})
    rules = Rules(
        Objective(Goal.MAXIMIZE_GOODPUT),
        LevelRange(1, 1e5),
        3,
        0.02,
        500_000,
        lambda _: None,
        soaked=soaked,
    )
    sides = Entrant(CURRENT, current, window_s=9.0), Entrant(OTHER, 320.0, window_s=4.0)
    confirm(bench, sides[0], [sides[1]], rules)
    assert bench.lengths == {CURRENT: {own_s}, OTHER: {own_s or (0.0 if soaked else 4.0)}}
