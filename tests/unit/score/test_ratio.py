"""Ratios of rounds with their confidence interval."""

from __future__ import annotations

import math
import random

import pytest

from tuner.score.ratio import ERROR, mean_with_interval, paired_ratio, two_sample_ratio


@pytest.mark.parametrize(("better", "worse"), [([5, 5, 5], [5, 5, 5]), ([6.0], [4.0])])
def test_equal_rounds_or_a_single_one_have_an_interval_without_width(
    better: list[float], worse: list[float]
) -> None:
    ratio = paired_ratio(better, worse)
    assert (ratio.low, ratio.estimate, ratio.high) == pytest.approx([better[0] / worse[0]] * 3)


def test_pairs_agree_with_the_t_interval_worked_by_hand() -> None:
    # logarithms 0.1, 0.2 and 0.3: mean 0.2, deviation 0.1; t(0.975, 2) = 4.302653
    half = 4.302653 * 0.1 / math.sqrt(3)
    ratio = paired_ratio([math.e**0.2, math.e**0.2, math.e**0.6], [math.e**0.1, 1, math.e**0.3])
    assert ratio.estimate == pytest.approx(math.exp(0.2))
    assert ratio.low == pytest.approx(math.exp(0.2 - half), rel=1e-6)
    assert ratio.high == pytest.approx(math.exp(0.2 + half), rel=1e-6)


def test_two_samples_agree_with_the_t_interval_worked_by_hand() -> None:
    # logarithms 0.1 and 0.3, and 0: deviation sqrt(0.02 / 1), twice 1 / 2 and 1; t(0.975, 1)
    half = 12.7062 * math.sqrt(0.02 * 1.5)
    ratio = two_sample_ratio([math.e**0.1, math.e**0.3], [1.0])
    assert ratio.estimate == pytest.approx(math.exp(0.2))
    assert ratio.high == pytest.approx(math.exp(0.2 + half), rel=1e-4)


def test_the_interval_widens_with_the_spread_and_with_what_it_may_not_miss() -> None:
    narrow = paired_ratio([10, 10.1, 9.9], [5, 5, 5])
    wide = paired_ratio([10, 14, 7], [5, 5, 5])
    surer = paired_ratio([10, 10.1, 9.9], [5, 5, 5], ERROR / 2)
    assert wide.high / wide.low > surer.high / surer.low > narrow.high / narrow.low > 1


def test_rounds_that_are_no_pairs_and_samples_of_nothing_are_refused() -> None:
    for better, worse in (([1.0], [1.0, 2.0]), ([], [])):
        with pytest.raises(ValueError, match="equal length"):
            paired_ratio(better, worse)
    with pytest.raises(ValueError, match="three in all"):
        two_sample_ratio([1.0], [1.0])


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    chance, covered = random.Random(1), 0
    for _ in range(400):
        values = [1.05 * chance.lognormvariate(0, 0.014) for _ in range(6)]
        ratio = mean_with_interval(values)
        covered += ratio.low <= 1.05 <= ratio.high
    assert 0.92 * 400 <= covered <= 0.98 * 400
