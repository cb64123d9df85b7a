"""The interval over nights: numbers are drawn, nothing is served."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tuner.confirm.regression import Change, change_of, over_nights, shows_no_change
from tuner.score.ratio import Ratio, mean_with_interval

WARN, FAIL = 0.03, 0.05


def found(seed: int, *, apart: float, loss: float = 0.0, known: int = 7) -> Change:
    """What six rounds say on a machine whose nights deviate by ``apart``, its rounds by 1 %."""
    random = np.random.default_rng(seed)
    nights = np.exp(random.normal(0.0, apart, known))
    tonight = np.log1p(-loss) + random.normal(0.0, apart)
    rounds = np.exp(tonight + random.normal(0.0, 0.014, 6)) / nights[0]
    ratio = over_nights(mean_with_interval(list(rounds)), 5, list(nights / nights[0]))
    return change_of(ratio, WARN, FAIL)


@pytest.mark.parametrize(
    ("apart", "loss", "change", "least", "most"),
    [
        (0.0, 0.0, Change.FINE, 0.95, 1.0),
        (0.0, 0.08, Change.REGRESSION, 0.95, 1.0),
        (0.03, 0.0, Change.REGRESSION, 0.0, 0.02),
        (0.03, 0.05, Change.FINE, 0.0, 0.04),
        (0.03, 0.15, Change.REGRESSION, 0.9, 1.0),
        (0.05, 0.0, Change.REGRESSION, 0.0, 0.03),
    ],
)
def test_losses_are_found_and_none_is_made_up(
    apart: float, loss: float, change: Change, least: float, most: float
) -> None:
    changes = list(map(partial(found, apart=apart, loss=loss), range(1000)))
    assert least <= changes.count(change) / 1000 <= most


def test_one_night_tells_little_and_nights_apart_widen_the_interval() -> None:
    tonight = Ratio(1.0, 0.99, 1 / 0.99)
    widths = [over_nights(tonight, 5, n).high for n in ([1.0], [1.0] * 3, [1.0, 0.95, 1.05])]
    assert widths[1] < 1.04 < widths[0] < 1.1 < widths[2]


def test_nights_are_compared_with_their_mean() -> None:
    ratio = over_nights(Ratio(0.99, 0.98, 1.0), 5, [1.0, 0.98])
    assert ratio.estimate == pytest.approx(0.99 / 0.98**0.5)


def test_a_night_with_a_certain_change_in_either_direction_is_not_accepted() -> None:
    assert shows_no_change(Ratio(0.95, 0.92, 0.98), WARN)
    assert not shows_no_change(Ratio(0.93, 0.91, 0.95), WARN)
    assert not shows_no_change(Ratio(1.07, 1.05, 1.09), WARN)
