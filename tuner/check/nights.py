"""Whether the config in the repository is still as good as the last accepted result.

Both were measured in rounds on fresh servers, on different days. The ratio of their geometric means
(now over then, above 1 is better) has an interval, and two thresholds are held against it: a loss
of ``warn`` is worth reporting, one of ``fail`` is a regression.
By the ends of the interval a loss is ruled out, or certain; inconclusive is not a pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev

from tuner.record.status import CheckStatus
from tuner.score.judge import SloOutcome
from tuner.score.point import Point
from tuner.score.ratio import ERROR, Ratio, quantile


def change_of(ratio: Ratio, warn: float, fail: float) -> CheckStatus:
    """What a ratio means by the thresholds, both shares lost, ``warn`` not above ``fail``."""
    if ratio.low > 1.0 - fail:
        return CheckStatus.FINE if ratio.estimate >= 1.0 - warn else CheckStatus.WORSE
    if ratio.high < 1.0 - warn:
        return CheckStatus.REGRESSION if ratio.estimate <= 1.0 - fail else CheckStatus.WORSE
    return CheckStatus.INCONCLUSIVE


def slo_status(points: Sequence[Point]) -> CheckStatus | None:
    """What one point a round says of the SLOs; None where they were met in every round.

    Inconclusive is a miss in some rounds, or not enough data to say.
    """
    if all(p.passed for p in points):
        return None
    missed = all(p.outcome is SloOutcome.MISSED for p in points)
    return CheckStatus.MISSED if missed else CheckStatus.INCONCLUSIVE


#: Fewer nights tell nothing of how nights differ.
ENOUGH = 3
#: So many nights are kept, and then no more, so that a slow loss is seen: they do not follow it.
MOST = 7
#: Degrees of freedom for each night that is known. With more of them, too many unchanged configs
#: are regressions on the first nights; with fewer, too few losses are found later. Simulated:
#: `benchmarks/claims/nights.py`.
FREEDOM = 3
#: A loss beyond what is certain by this many half intervals more is found in four nights of five:
#: the 80 % quantile of the normal distribution is 0.43 of its 97.5 % quantile.
_POWER = 1.43


def over_nights(tonight: Ratio, freedom: int, nights: Sequence[float], deviation: float) -> Ratio:
    """The ratio to the mean of the accepted nights, with the variance of nights in its interval.

    Rounds of one night cannot tell how nights differ: temperature, neighbours on the host and the
    place in memory move all rounds of a night together. The logarithm of the ratio of a night to
    the mean of N accepted ones is the true change, plus the effect of this night, minus the mean
    effect of those, plus the noise of the rounds. Its variance is

        d^2 (1 + 1/N) + w (1 + 1/N) / 2,

    where d is the standard deviation of nights: ``deviation``, or from `ENOUGH` nights on theirs,
    if that is larger (noise of their rounds included, which errs on the wide side). w is the
    variance that this night's rounds show of the difference to one night (Higgins, Thompson and
    Spiegelhalter, A re-evaluation of random-effects meta-analysis, JRSS A 172, 2009: a further
    member of a population). The quantile is Student's, with the degrees of freedom of a sum of
    variances (Satterthwaite, Biometrics Bulletin 2, 1946), of which d^2 has `FREEDOM` N.

    Args:
        tonight: To the first of those nights, with the interval of this night's rounds.
        freedom: Degrees of freedom of that interval, at least 1.
        nights: Each accepted night as a ratio to the first, which is 1.
        deviation: By how much a night is off as a rule, as a share.
    """
    logs = [math.log(ratio) for ratio in nights]
    count, mean = len(logs), math.fsum(logs) / len(logs)
    if count >= ENOUGH:
        deviation = max(deviation, stdev(logs))
    within = (math.log(tonight.high / tonight.estimate) / quantile(freedom, ERROR)) ** 2
    between, within = ((1.0 + 1.0 / count) * v for v in (deviation**2, within / 2.0))
    both = between + within
    squares = between**2 / (FREEDOM * count) + within**2 / freedom
    half = quantile(both**2 / squares, ERROR) * math.sqrt(both) if both else 0.0
    estimate = tonight.estimate / math.exp(mean)
    return Ratio(estimate, estimate * math.exp(-half), estimate * math.exp(half))


def shows_no_change(ratio: Ratio, warn: float) -> bool:
    """Whether neither a loss nor a gain above ``warn`` is certain: such a night may be accepted.

    Both sides alike, lest lucky nights raise the mean, as they would if only fine ones were.
    """
    return ratio.high >= 1.0 - warn and ratio.low <= 1.0 / (1.0 - warn)


def detectable_loss(ratio: Ratio, warn: float) -> float:
    """The loss, as a share, that an interval this wide finds in four nights of five."""
    return 1.0 - (1.0 - warn) * math.pow(ratio.estimate / ratio.high, _POWER)
