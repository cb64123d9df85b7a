"""Whether the config in the repository is still as good as the last accepted result.

Both were measured in rounds on fresh servers, on different days. The ratio of their geometric means
(now over then, above 1 is better) has an interval, and two thresholds are held against it: a loss
of ``warn`` is worth reporting, one of ``fail`` is a regression.

- *Fine*: a loss of ``fail`` is ruled out, and the estimate is no loss of ``warn``.
- *Worse*: a loss of ``fail`` is ruled out and the estimate is a loss of ``warn``; or some loss of
  ``warn`` is certain, and the estimate is no loss of ``fail``.
- *Regression*: surely a loss of ``warn``, and by the estimate one of ``fail``.
- *Inconclusive*: the interval reaches from a loss of ``fail`` to less than one of ``warn``.

"Ruled out" and "surely" refer to the end of the interval. Inconclusive is not a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from tuner.score.point import Point
from tuner.score.ratio import Ratio


class Change(Enum):
    FINE = "fine"
    WORSE = "worse"
    REGRESSION = "regression"
    INCONCLUSIVE = "inconclusive"


class Held(Enum):
    """Whether the SLOs were met at the load that must be sustained."""

    MET = "met"  # in every round
    MISSED = "missed"  # in every round
    UNCLEAR = "unclear"  # in some, or not enough data to say


def change_of(ratio: Ratio, warn: float, fail: float) -> Change:
    """What a ratio means by the thresholds, both shares lost, ``warn`` not above ``fail``."""
    if ratio.low > 1.0 - fail:
        return Change.FINE if ratio.estimate >= 1.0 - warn else Change.WORSE
    if ratio.high < 1.0 - warn:
        return Change.REGRESSION if ratio.estimate <= 1.0 - fail else Change.WORSE
    return Change.INCONCLUSIVE


def held(points: Sequence[Point]) -> Held:
    """From one point a round, at least one."""
    if all(p.passed for p in points):
        return Held.MET
    missed = [any(s.verdict.missed for s in p.slo) for p in points]
    return Held.MISSED if all(missed) else Held.UNCLEAR
