from __future__ import annotations

import math

import numpy as np
import pytest
from synthetic import P99_40MS, synthetic_server

from tuner.confirm.interim import InterimAnalyses
from tuner.confirm.repeatability import (
    LEAST_ROUNDS,
    MOST_ROUNDS,
    POWER,
    Settings,
    advice,
    noise_of,
    provable_gain,
    rounds_needed,
    rounds_text,
    spread,
    worth_of,
)
from tuner.run.confirmation import Repeat, Role
from tuner.score.point import judge_point
from tuner.score.ratio import paired_ratio

NOW = Settings(window_s=5.0, rounds=3, min_gain=0.02)


def test_spread_finds_the_noise_it_was_made_with() -> None:
    random = np.random.default_rng(1)
    groups = [list(mean * (1 + 0.05 * random.standard_normal(4))) for mean in np.arange(50, 450)]
    found = spread(groups)
    assert found.cv == pytest.approx(0.05, rel=0.03)
    assert found.count == 1600


def test_spread_of_two_values_by_hand() -> None:
    # deviations of 1 % and -1 % from the mean, one degree of freedom
    assert spread([[99.0, 101.0]]).cv == pytest.approx(math.sqrt(2) * 0.01)


def test_spread_pools_what_was_repeated_and_passes_over_the_rest() -> None:
    # squares of 1 % twice and of 2 % twice, over one degree of freedom each
    found = spread([[99.0, 101.0], [7.0], [], [0.0, 0.0], [98.0, 102.0]])
    assert found.cv == pytest.approx(math.sqrt((2 * 0.01**2 + 2 * 0.02**2) / 2))
    assert found.count == 4


@pytest.mark.parametrize("groups", [[], [[]], [[5.0]], [[1.0], [2.0]], [[0.0, 0.0]]])
def test_nothing_repeated_has_no_spread(groups: list[list[float]]) -> None:
    assert spread(groups).cv is None


@pytest.mark.parametrize(("deviation", "min_gain"), [(0.01, 0.02), (0.03, 0.02), (0.02, 0.05)])
def test_the_provable_gain_is_confirmed_in_eight_of_ten_runs(
    deviation: float, min_gain: float
) -> None:
    """The formula against the interval the confirmation really computes, at both its looks."""
    random = np.random.default_rng(2)
    gain, looks, runs = provable_gain(deviation, 3, min_gain), InterimAnalyses(3), 1000
    confirmed = 0
    for _ in range(runs):
        ratios = list((1.0 + gain) * np.exp(deviation * random.standard_normal(6)))
        ones = [1.0] * 6
        confirmed += any(
            paired_ratio(ratios[:n], ones[:n], looks.error(n)).low > 1.0 + min_gain for n in (3, 6)
        )
    assert confirmed / runs == pytest.approx(POWER, abs=0.04)


def test_without_noise_a_gain_that_is_worth_a_change_is_proved() -> None:
    assert provable_gain(0.0, 3, 0.02) == pytest.approx(0.02)


def test_rounds_needed_is_the_first_that_does() -> None:
    rounds = rounds_needed(0.01, 0.02)
    assert rounds is not None
    bar = worth_of(0.02)
    assert provable_gain(0.01, rounds, 0.02) <= bar < provable_gain(0.01, rounds - 1, 0.02)


def test_a_quiet_machine_needs_the_least_rounds_and_a_loud_one_has_none() -> None:
    assert rounds_needed(0.001, 0.02) == LEAST_ROUNDS
    assert rounds_needed(0.2, 0.02) is None


def test_what_does_is_kept() -> None:
    assert advice(0.002, NOW, 20.0).settings == NOW


def test_more_rounds_come_first() -> None:
    found = advice(0.01, NOW, 20.0)
    assert found.settings == Settings(5.0, rounds_needed(0.01, 0.02) or 0, 0.02)
    assert len(found.reasons) == 2


def test_then_longer_windows() -> None:
    found = advice(0.03, NOW, 40.0)
    assert found.settings.window_s > NOW.window_s
    assert LEAST_ROUNDS <= found.settings.rounds <= MOST_ROUNDS
    assert found.settings.min_gain == NOW.min_gain


def test_then_a_gain_that_can_be_proved() -> None:
    found = advice(0.03, NOW, 6.0)
    assert found.settings.window_s == NOW.window_s
    assert found.settings.min_gain > NOW.min_gain
    assert "can rarely be confirmed" in found.reasons[1]
    for deviation in np.linspace(0.03, 0.3, 50):
        gain = advice(float(deviation), NOW, 6.0).settings.min_gain
        assert provable_gain(float(deviation), 6, gain) <= worth_of(gain) + 1e-12
        if gain > NOW.min_gain:
            assert provable_gain(float(deviation), 6, gain - 0.01) > worth_of(gain - 0.01)


def row(round_: int, candidate: str, level: float, capacity: float = 100.0) -> Repeat:
    point = judge_point([P99_40MS], synthetic_server(level, capacity))
    return Repeat(round_, 0, Role.CANDIDATE, candidate, point)


def test_the_noise_of_a_run_comes_from_what_it_repeated() -> None:
    rows = [
        *(row(n, "a", 95.0, capacity) for n, capacity in enumerate((100.0, 102.0, 98.0))),
        *(row(n, "a", 105.0, capacity) for n, capacity in enumerate((100.0, 102.0, 98.0))),
        row(0, "b", 95.0),
    ]
    found = noise_of(rows)
    assert found is not None
    assert (found.repeats, found.rounds) == (6, 3)
    assert found.throughput_cv == pytest.approx(0.0, abs=0.01)
    assert found.p99_cv is not None
    assert found.p99_cv > 0.05
    assert found.capacity_cv == pytest.approx(0.02, rel=0.2)


def test_a_run_that_repeated_nothing_knows_no_noise() -> None:
    assert noise_of([]) is None
    assert noise_of([row(0, "a", 95.0), row(0, "b", 95.0)]) is None


def test_the_most_rounds_are_still_recommended_and_one_more_is_not() -> None:
    needed = [rounds_needed(float(d), 0.02) for d in np.linspace(0.001, 0.05, 500)]
    known = [n for n in needed if n is not None]
    assert known == sorted(known)  # the noisier, the more
    assert max(known) == MOST_ROUNDS
    assert set(needed[len(known) :]) == {None}


def test_from_three_to_ten_rounds_are_recommended() -> None:
    needed = {rounds_needed(float(cv), 0.02) for cv in np.linspace(0.001, 0.05, 500)}
    assert needed == {None, *range(3, 11)}


def test_rounds_are_told_with_their_second_look() -> None:
    assert rounds_text(3) == "3 rounds (6 if those are inconclusive)"


@pytest.mark.parametrize(("longest_s", "factor"), [(10.0, 2), (20.0, 4), (40.0, 8)])
def test_windows_grow_no_more_than_they_may_and_must(longest_s: float, factor: int) -> None:
    """Noise that just so many times the window brings below the gain."""
    cv = next(
        c
        for c in np.arange(0.001, 0.2, 0.0005)
        if rounds_needed(c / math.sqrt(factor / 2), NOW.min_gain) is None
    )
    found = advice(float(cv), NOW, longest_s).settings
    assert found.window_s == factor * NOW.window_s
    assert found.rounds == rounds_needed(float(cv) / math.sqrt(factor), NOW.min_gain)
    shorter = advice(float(cv), NOW, longest_s - 0.1).settings
    assert shorter.window_s == NOW.window_s
    assert shorter.min_gain > NOW.min_gain
    assert shorter.rounds == 2 * LEAST_ROUNDS
