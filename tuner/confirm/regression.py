"""Whether the config in the repository is still as good as the last accepted result.

Both were measured in rounds on fresh servers, on different days. The ratio of their geometric means
(now over then, above 1 is better) has an interval, and two thresholds are held against it: a loss
of ``warn`` is worth reporting, one of ``fail`` is a regression.
By the ends of the interval a loss is ruled out, or certain; inconclusive is not a pass.

Rounds of one night cannot tell how nights differ: temperature, neighbours on the host and the place
in memory move all rounds of a night together. The logarithm of the ratio of a night to the mean of
N accepted ones is the true change, plus the effect of this night, minus the mean effect of those,
plus the noise of the rounds. If the effects have the variance b, a further night is off that mean
by b (1 + 1/N) (Higgins, Thompson and Spiegelhalter, A re-evaluation of random-effects meta-
analysis, JRSS A 172, 2009). Few nights tell little of b, so it has a scaled inverse chi-squared
prior (Gelman et al., Bayesian Data Analysis, section 2.6):

    b = (PRIOR_FREEDOM PRIOR_DEVIATION^2 + S) / (PRIOR_FREEDOM + N - 1),

where S is the sum of the squared deviations of the N nights from their mean (noise of their rounds
included, which errs on the wide side). Added is the variance of this night's rounds; the degrees of
freedom are Satterthwaite's (Biometrics Bulletin 2, 1946). Simulated:
`benchmarks/claims/nights.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

from tuner.score.point import Point
from tuner.score.ratio import ERROR, Ratio, quantile


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


#: With fewer nights the interval is wide since little is known.
ENOUGH = 3
#: So many nights are kept, and then no more, so that a slow loss is seen: they do not follow it.
MOST = 7
#: What a night is off: eleven quiet nights (benchmarks/claims/) deviate by 1.3 %, their rounds
#: included. The prior weighs as much as three nights.
PRIOR_DEVIATION, PRIOR_FREEDOM = 0.013, 2
#: A loss beyond what is certain by this many half intervals more is found in four nights of five:
#: the 80 % quantile of the normal distribution is 0.43 of its 97.5 % quantile.
_POWER = 1.43


def over_nights(tonight: Ratio, freedom: int, nights: Sequence[float]) -> Ratio:
    """The ratio to the mean of the accepted nights, with the variance of nights in its interval.

    Args:
        tonight: To the first of those nights, with the interval of this night's rounds.
        freedom: Degrees of freedom of that interval, at least 1.
        nights: Each accepted night as a ratio to the first, which is 1.
    """
    logs = [math.log(ratio) for ratio in nights]
    mean = math.fsum(logs) / len(logs)
    known = PRIOR_FREEDOM + len(logs) - 1
    squares = PRIOR_FREEDOM * PRIOR_DEVIATION**2 + math.fsum((x - mean) ** 2 for x in logs)
    between = squares / known * (1.0 + 1.0 / len(logs))
    within = (math.log(tonight.high / tonight.estimate) / quantile(freedom, ERROR)) ** 2
    within *= (1.0 + 1.0 / len(logs)) / 2.0  # it was of the difference to one night, not to N
    both = within + between
    effective = both**2 / (within**2 / freedom + between**2 / known)
    spread = math.exp(quantile(effective, ERROR) * math.sqrt(both))
    estimate = tonight.estimate / math.exp(mean)
    return Ratio(estimate, estimate / spread, estimate * spread)


def shows_no_change(ratio: Ratio, warn: float) -> bool:
    """Whether neither a loss nor a gain above ``warn`` is certain: such a night may be accepted.

    Both sides alike, lest lucky nights raise the mean, as they would if only fine ones were.
    """
    return ratio.high >= 1.0 - warn and ratio.low <= 1.0 / (1.0 - warn)


def loss_found(ratio: Ratio, warn: float) -> float:
    """The loss, as a share, that an interval this wide finds in four nights of five."""
    return 1.0 - (1.0 - warn) * math.pow(ratio.estimate / ratio.high, _POWER)
