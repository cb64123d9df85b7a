"""The two-sample interval, and what a check makes of it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement

from tuner.check.nights import change_of, over_nights, shows_no_change, slo_status
from tuner.record.status import CheckStatus
from tuner.score.point import Point, judge_point
from tuner.score.ratio import ERROR, Ratio, mean_with_interval, quantile, two_sample_ratio

WARN, FAIL = 0.03, 0.05


def point(p99_ms: float, count: int = 1000) -> Point:
    measurement = synthetic_measurement(p99_us=p99_ms * 1000, count=count)
    return judge_point([P99_40MS, NO_ERRORS], measurement)


class TestTwoSampleRatio:
    def test_agrees_with_the_pooled_t_interval_worked_by_hand(self) -> None:
        now, before = [math.e**0.1, math.e**0.2, math.e**0.3], [1.0, 1.0, math.e**0.3]
        # means 0.2 and 0.1; squares 0.02 and 0.06 over 4 degrees; t(0.975, 4) = 2.776445
        half = 2.776445 * math.sqrt(0.08 / 4 * (1 / 3 + 1 / 3))
        ratio = two_sample_ratio(now, before)
        assert ratio.estimate == pytest.approx(math.exp(0.1))
        assert ratio.low == pytest.approx(math.exp(0.1 - half), rel=1e-6)
        assert ratio.high == pytest.approx(math.exp(0.1 + half), rel=1e-6)

    def test_two_looks_are_wider_than_one(self) -> None:
        one, two = (two_sample_ratio([9, 10, 11], [10, 11, 12], ERROR / n) for n in (1, 2))
        assert two.low < one.low < one.estimate < one.high < two.high

    def test_swapped_samples_give_the_inverse(self) -> None:
        ratio, other = (
            two_sample_ratio([9, 10, 11], [12, 14]),
            two_sample_ratio([12, 14], [9, 10, 11]),
        )
        assert ratio.low == pytest.approx(1 / other.high)

    @pytest.mark.parametrize(("now", "before"), [([], [1, 2, 3]), ([1, 2, 3], []), ([1], [1])])
    def test_too_few_values_have_no_interval(self, now: list[float], before: list[float]) -> None:
        with pytest.raises(ValueError, match="three in all"):
            two_sample_ratio(now, before)

    def test_covers_the_truth_as_often_as_it_says(self) -> None:
        random = np.random.default_rng(7)
        inside = 0
        for _ in range(400):
            now = 95.0 * np.exp(0.02 * random.normal(size=3))
            before = 100.0 * np.exp(0.02 * random.normal(size=6))
            ratio = two_sample_ratio(list(now), list(before))
            inside += ratio.low <= 0.95 <= ratio.high
        assert 0.92 <= inside / 400 <= 0.98


class TestChange:
    @pytest.mark.parametrize(
        ("low", "estimate", "high", "change"),
        [
            (0.97, 1.0, 1.03, CheckStatus.FINE),
            (1.1, 1.2, 1.3, CheckStatus.FINE),
            (0.951, 0.971, 0.991, CheckStatus.FINE),
            (0.952, 0.96, 0.968, CheckStatus.WORSE),  # no loss of 5 %, but by estimate of 3 %
            (0.945, 0.955, 0.965, CheckStatus.WORSE),  # surely 3 %, 5 % only at the end
            (0.90, 0.94, 0.969, CheckStatus.REGRESSION),
            (0.10, 0.11, 0.12, CheckStatus.REGRESSION),
            (0.90, 0.94, 0.98, CheckStatus.INCONCLUSIVE),  # nearly nothing, or a tenth
            (0.80, 1.0, 1.25, CheckStatus.INCONCLUSIVE),
        ],
    )
    def test_by_both_thresholds(
        self, low: float, estimate: float, high: float, change: CheckStatus
    ) -> None:
        assert change_of(Ratio(estimate, low, high), WARN, FAIL) is change

    @pytest.mark.parametrize(
        ("low", "estimate", "high", "change"),
        [
            (0.51, 0.75, 0.9, CheckStatus.FINE),  # a loss just at what is worth telling
            (0.51, 0.7499, 0.9, CheckStatus.WORSE),
            (0.5, 0.8, 0.9, CheckStatus.INCONCLUSIVE),  # the loss that fails is not ruled out
            (0.4, 0.6, 0.75, CheckStatus.INCONCLUSIVE),  # one worth telling is not certain
            (0.4, 0.5, 0.7, CheckStatus.REGRESSION),
            (0.4, 0.5001, 0.7, CheckStatus.WORSE),
        ],
    )
    def test_at_the_thresholds_themselves(
        self, low: float, estimate: float, high: float, change: CheckStatus
    ) -> None:
        assert change_of(Ratio(estimate, low, high), 0.25, 0.5) is change

    def test_every_interval_has_an_answer_and_no_wide_one_passes(self) -> None:
        for center in np.linspace(0.5, 1.5, 201):
            narrow = change_of(Ratio(center, center - 1e-6, center + 1e-6), WARN, FAIL)
            wide = change_of(Ratio(center, center * 0.5, center * 2.0), WARN, FAIL)
            assert narrow is not CheckStatus.INCONCLUSIVE
            assert wide is not CheckStatus.FINE

    def test_equal_thresholds_leave_no_room_for_a_warning_when_it_is_certain(self) -> None:
        assert change_of(Ratio(0.949, 0.948, 0.9499), 0.05, 0.05) is CheckStatus.REGRESSION
        assert change_of(Ratio(0.951, 0.9501, 0.952), 0.05, 0.05) is CheckStatus.FINE


class TestSloStatus:
    def test_met_means_in_every_round(self) -> None:
        assert slo_status([point(30), point(39)]) is None
        assert slo_status([point(30), point(41)]) is CheckStatus.INCONCLUSIVE

    def test_missed_means_in_every_round(self) -> None:
        assert slo_status([point(41), point(50)]) is CheckStatus.MISSED

    def test_too_little_data_is_neither(self) -> None:
        assert slo_status([point(30, count=20)] * 3) is CheckStatus.INCONCLUSIVE
        assert slo_status([point(41), point(30, count=20)]) is CheckStatus.INCONCLUSIVE

    def test_refused_requests_miss(self) -> None:
        lost = replace(synthetic_measurement(), failed_count=5)
        assert slo_status([judge_point([NO_ERRORS], lost)]) is CheckStatus.MISSED


def status_of_loss(seed: int, *, apart: float, loss: float = 0.0, known: int = 7) -> CheckStatus:
    """What six rounds say on a machine whose nights deviate by ``apart``, its rounds by 1 %."""
    random = np.random.default_rng(seed)
    nights = np.exp(random.normal(0.0, apart, known))
    tonight = np.log1p(-loss) + random.normal(0.0, apart)
    rounds = np.exp(tonight + random.normal(0.0, 0.014, 6)) / nights[0]
    ratio = over_nights(mean_with_interval(list(rounds)), 5, list(nights / nights[0]), 0.015)
    return change_of(ratio, WARN, FAIL)


@pytest.mark.parametrize(
    ("apart", "loss", "change", "least", "most"),
    [
        (0.0, 0.0, CheckStatus.FINE, 0.95, 1.0),
        (0.0, 0.08, CheckStatus.REGRESSION, 0.95, 1.0),
        (0.03, 0.0, CheckStatus.REGRESSION, 0.0, 0.02),
        (0.03, 0.05, CheckStatus.FINE, 0.0, 0.04),
        (0.03, 0.15, CheckStatus.REGRESSION, 0.9, 1.0),
        (0.05, 0.0, CheckStatus.REGRESSION, 0.0, 0.03),
    ],
)
def test_losses_are_detected_without_false_alarms(
    apart: float, loss: float, change: CheckStatus, least: float, most: float
) -> None:
    changes = list(map(partial(status_of_loss, apart=apart, loss=loss), range(1000)))
    assert least <= changes.count(change) / 1000 <= most


QUIET = Ratio(1.0, 0.999, 1 / 0.999)


def high(nights: list[float], deviation: float = 0.015) -> float:
    return over_nights(QUIET, 5, nights, deviation).high


def test_the_setting_widens_the_interval_and_so_do_nights_that_differ_more() -> None:
    alike, apart = [1.0, 1.0, 1.0], [1.0, 0.95, 1.05]
    assert high(alike) < high(alike, 0.03) < high(apart) == high(apart, 0.03)
    assert high([1.0]) == high([1.0, 1.0][:1]) > high(alike)


def test_two_nights_do_not_tell_how_nights_differ() -> None:
    assert high([1.0, 0.9]) / over_nights(QUIET, 5, [1.0, 0.9], 0.015).estimate == pytest.approx(
        high([1.0, 1.0]), rel=1e-6
    )


def test_without_any_deviation_only_the_rounds_count() -> None:
    assert over_nights(QUIET, 5, [1.0], 0.0).high == pytest.approx(QUIET.high)
    assert over_nights(Ratio(0.9, 0.9, 0.9), 5, [1.0], 0.0) == Ratio(0.9, 0.9, 0.9)


def test_the_interval_is_the_one_worked_by_hand() -> None:
    """Nights vary by 0.0225^2 (1 + 1/4), 3 x 4 degrees; rounds by 0.01^2 (1 + 1/4) / 2, 5."""
    tonight = Ratio(1.0, math.exp(-2.570582 * 0.01), math.exp(2.570582 * 0.01))
    between, within = 1.25 * 0.0225**2, 1.25 / 2 * 0.01**2
    freedom = (between + within) ** 2 / (between**2 / 12 + within**2 / 5)
    half = quantile(freedom, ERROR) * math.sqrt(between + within)
    ratio = over_nights(tonight, 5, [1.0] * 4, 0.0225)
    assert ratio.high == pytest.approx(math.exp(half), rel=1e-6)
    assert freedom == pytest.approx(14.15, abs=0.1)


def test_nights_are_compared_with_their_mean() -> None:
    ratio = over_nights(Ratio(0.99, 0.98, 1.0), 5, [1.0, 0.98], 0.015)
    assert ratio.estimate == pytest.approx(0.99 / 0.98**0.5)


def test_a_night_with_a_certain_change_in_either_direction_is_not_accepted() -> None:
    assert shows_no_change(Ratio(0.95, 0.92, 0.98), WARN)
    assert not shows_no_change(Ratio(0.93, 0.91, 0.95), WARN)
    assert not shows_no_change(Ratio(1.07, 1.05, 1.09), WARN)
