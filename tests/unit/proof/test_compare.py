"""How many times better one config is than another, by values of the same rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.proof.compare import ALIKE, SYSTEMATIC, UNLIKE, Side, Tail, compare, systematic
from tuner.score.ratio import ERROR, Ratio

VALUES = st.lists(st.floats(1.0, 1e4), min_size=2, max_size=6)
CALM = (0.0,) * 50
#: The logarithm of a capacity falls by so much for each percent that others take.
FALLS = 0.01


def side(values: Sequence[float], taken: Sequence[float] = CALM) -> Side:
    return Side(values, taken[: len(values)])


def drawn(random: np.random.Generator, rounds: int, *truths: float, noise: float) -> list[Side]:
    """Servers differ by the noise, and what a round does to all is ten times it."""
    weather = 10.0 * noise * random.standard_normal(rounds)
    logs = [math.log(t) + weather + noise * random.standard_normal(rounds) for t in truths]
    return [side(np.exp(values).tolist()) for values in logs]


def beside_a_job(one: Side, taken: Sequence[float]) -> Side:
    """The same where others took these percents of the machine in each round."""
    slower = [v * math.exp(-FALLS * t) for v, t in zip(one.values, taken, strict=True)]
    return Side(slower, taken)


@pytest.mark.parametrize(("sides", "rounds"), [(2, 3), (2, 10), (3, 3), (4, 5)])
def test_the_interval_holds_the_truth_as_often_as_it_says(sides: int, rounds: int) -> None:
    random, runs = np.random.default_rng(sides * rounds), 1000
    covered = 0
    for _ in range(runs):
        one, other, *beside = drawn(random, rounds, *[1.05, 1.0, 0.5, 2.0][:sides], noise=0.5)
        ratio = compare(one, other, ERROR, beside)
        covered += ratio.low <= 1.05 <= ratio.high
    assert covered / runs == pytest.approx(0.95, abs=0.02)


def test_what_a_round_does_to_all_of_it_does_not_count() -> None:
    even, other, kinder = (10.0, 10.1, 9.9), (5.0, 5.0, 5.0), (2.0, 1.0, 0.5)
    moved = [[v * k for v, k in zip(values, kinder, strict=True)] for values in (even, other)]
    expected = compare(side(even), side(other), ERROR)
    assert vars(compare(side(moved[0]), side(moved[1]), ERROR)) == pytest.approx(vars(expected))


def test_of_two_it_is_the_paired_t_interval_worked_by_hand() -> None:
    # logarithms 0.1, 0.2 and 0.3: mean 0.2, deviation 0.1; t(0.975, 2) = 4.302653
    half = 4.302653 * 0.1 / math.sqrt(3) + SYSTEMATIC
    one, other = side([math.e**0.2, math.e**0.2, math.e**0.6]), side([math.e**0.1, 1, math.e**0.3])
    ratio = compare(one, other, ERROR)
    assert ratio.estimate == pytest.approx(math.exp(0.2))
    assert ratio.low == pytest.approx(math.exp(0.2 - half), rel=1e-6)
    assert ratio.high == pytest.approx(math.exp(0.2 + half), rel=1e-6)


def test_tails_of_unlike_queues_widen_the_interval_the_more_the_shorter_the_windows() -> None:
    def tailed(spread: float, requests: float) -> Side:
        return replace(side([1.0]), tail=Tail(spread, requests))

    batches, alike, alone = tailed(0.6, 314.0), tailed(0.6 + ALIKE, 311.0), tailed(1.25, 313.0)
    assert systematic(batches, alike) == pytest.approx(SYSTEMATIC)
    assert systematic(side([1.0]), alone) == SYSTEMATIC
    apart = systematic(batches, alone)
    assert apart == pytest.approx(SYSTEMATIC + UNLIKE * (0.65 - ALIKE) / 313.0)
    assert systematic(alone, batches) == apart
    longer = systematic(tailed(0.6, 3140.0), tailed(1.25, 3130.0))
    assert longer - SYSTEMATIC == pytest.approx((apart - SYSTEMATIC) / 10.0)


def test_a_lead_within_the_loads_around_both_capacities_is_no_gain() -> None:
    """No latency was near the bound: of each config, one load passed and one 8% higher did not."""
    one, other = side([1.04, 1.05, 1.04, 1.04, 1.05]), side([1.0, 1.01, 1.0, 0.99, 1.0])
    assert compare(one, other, ERROR).low > 1.0
    hidden = replace(one, unseen=math.log(1.08))
    assert compare(hidden, other, ERROR).low < 1.0
    assert compare(hidden, other, ERROR) == compare(
        one, replace(other, unseen=math.log(1.08)), ERROR
    )


def test_a_lead_as_large_as_the_error_of_unlike_queues_is_no_gain() -> None:
    """Two of one capacity, one with batches: its short windows overstate it by 6%."""
    values, others = [1.06, 1.07, 1.05, 1.06], [1.0, 1.01, 0.99, 1.0]
    one, other = side(values), side(others)
    assert compare(one, other, ERROR).low > 1.0
    unlike = compare(
        replace(one, tail=Tail(0.6, 313.0)), replace(other, tail=Tail(1.2, 313.0)), ERROR
    )
    assert unlike.low < 1.0 < unlike.high
    assert unlike.estimate == pytest.approx(compare(one, other, ERROR).estimate)


@settings(deadline=None)
@given(VALUES, st.randoms(use_true_random=False))
def test_seen_from_the_other_side_it_is_the_inverse(values: list[float], random: Random) -> None:
    one, other = side(values), side([v * random.uniform(0.5, 2.0) for v in values])
    ratio, back = compare(one, other, ERROR), compare(other, one, ERROR)
    assert ratio.low <= ratio.estimate <= ratio.high
    assert back.estimate == pytest.approx(1.0 / ratio.estimate)
    assert back.low == pytest.approx(1.0 / ratio.high)


def test_it_narrows_with_rounds_and_with_sides_and_widens_with_what_it_may_not_miss() -> None:
    random = np.random.default_rng(5)

    def width(rounds: int, sides: int, error: float = ERROR) -> float:
        """Mean width of the interval's logarithm."""
        draws = (drawn(random, rounds, *[1.0] * sides, noise=0.03) for _ in range(150))
        ratios = [compare(one, other, error, beside) for one, other, *beside in draws]
        return float(np.mean([math.log(r.high / r.low) for r in ratios]))

    assert width(10, 2) < width(5, 2) < width(3, 2)
    assert width(3, 3) < width(3, 2)
    assert width(3, 2, ERROR / 2) > width(3, 2)


def test_no_number_of_rounds_makes_it_surer_than_a_capacity_is_read() -> None:
    ratio = compare(side([1.1] * 50), side([1.0] * 50), ERROR)
    assert math.log(ratio.high / ratio.estimate) == pytest.approx(SYSTEMATIC, rel=1e-3)
    assert math.log(ratio.estimate / ratio.low) == pytest.approx(SYSTEMATIC, rel=1e-3)


@pytest.mark.parametrize(("one", "other"), [([1.0], [2.0]), ([1.0, 2.0, 3.0], [1.0, 2.0])])
def test_one_round_or_unequal_ones_are_refused(one: list[float], other: list[float]) -> None:
    with pytest.raises(ValueError, match=r"two rounds|inhomogeneous"):
        compare(side(one), side(other), ERROR)


class TestOthersBesideOne:
    """What others take of the machine while one side is measured."""

    def test_the_interval_holds_the_truth_whatever_they_took_in_some_rounds(self) -> None:
        random, runs, covered = np.random.default_rng(3), 600, 0
        for _ in range(runs):
            one, other = drawn(random, 7, 1.05, 1.0, noise=0.03)
            taken = [30.0, 30.0, 0.0, 0.0, 0.0, 0.0, 0.0]
            ratio = compare(one, beside_a_job(other, taken), ERROR)
            covered += ratio.low <= 1.05 <= ratio.high
        assert covered >= 0.93 * runs

    def test_without_it_that_would_be_taken_for_a_gain(self) -> None:
        one, other = drawn(np.random.default_rng(4), 7, 1.0, 1.0, noise=0.003)
        slowed = beside_a_job(other, [30.0, 30.0, 25.0, 30.0, 35.0, 30.0, 0.0])
        assert compare(one, Side(slowed.values, other.taken_percent), ERROR).low > 1.05
        ratio = compare(one, slowed, ERROR)
        assert ratio.low < 1.0 < ratio.high
        assert ratio.estimate == pytest.approx(1.0, abs=0.02)

    def test_where_it_was_so_in_every_round_alike_nothing_is_known(self) -> None:
        one, other = drawn(np.random.default_rng(5), 5, 1.0, 1.0, noise=0.003)
        ratio = compare(one, beside_a_job(other, [30.0] * 5), ERROR)
        assert (ratio.low, ratio.high) == (0.0, math.inf)

    def test_what_they_took_beside_both_alike_does_not_count(self) -> None:
        one, other = drawn(np.random.default_rng(6), 5, 1.2, 1.0, noise=0.003)
        expected, taken = compare(one, other, ERROR), [30.0, 0.0, 50.0, 10.0, 30.0]
        ratio = compare(beside_a_job(one, taken), beside_a_job(other, taken), ERROR)
        assert vars(ratio) == pytest.approx(vars(expected))

    def test_a_little_of_it_is_noise_like_any_other(self) -> None:
        one, other = drawn(np.random.default_rng(7), 5, 1.2, 1.0, noise=0.003)
        little = Side(other.values, [1.0, 0.5, 2.0, 0.0, 1.0])
        assert vars(compare(one, little, ERROR)) == pytest.approx(vars(compare(one, other, ERROR)))

    def test_two_rounds_do_not_tell_what_it_costs(self) -> None:
        one, other = drawn(np.random.default_rng(8), 2, 1.0, 1.0, noise=0.003)
        ratio: Ratio = compare(one, beside_a_job(other, [30.0, 0.0]), ERROR)
        assert (ratio.low, ratio.high) == (0.0, math.inf)


def test_sides_that_others_disturb_unlike_in_every_round_are_not_compared() -> None:
    """On a busy machine, a config that needs little CPU leaves more of it to others.

    By a fit of the rounds' small differences the one, of 13 times the capacity, was called a loss.
    """
    one = Side((1744.0, 2212.0, 1865.0), (62.1, 60.9, 66.3))
    other = Side((107.0, 149.0, 136.0), (92.0, 91.7, 91.0))
    third = Side((1410.0, 700.0, 750.0), (69.8, 74.5, 75.9))
    ratio = compare(one, other, ERROR, [third])
    assert (ratio.low, ratio.high) == (0.0, math.inf)
    assert ratio.estimate == pytest.approx(14.9, rel=0.01)
