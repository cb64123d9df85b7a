"""Whether the config in the repository is still as good as the last accepted result.

Both were measured in rounds on fresh servers, on different days. The interval of the ratio of their
geometric means (now over then; above 1 is better) is compared with two thresholds: a loss of
``warn`` is reported, a loss of ``fail`` is a regression. A loss is ruled out, or certain, if the
entire interval says so. Inconclusive is not a pass.
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
    """Judges a ratio by two losses, as shares; ``warn`` is at most ``fail``."""
    if ratio.low > 1.0 - fail:
        return CheckStatus.FINE if ratio.estimate >= 1.0 - warn else CheckStatus.WORSE
    if ratio.high < 1.0 - warn:
        return CheckStatus.REGRESSION if ratio.estimate <= 1.0 - fail else CheckStatus.WORSE
    return CheckStatus.INCONCLUSIVE


def slo_status(points: Sequence[Point]) -> CheckStatus | None:
    """Judges the SLOs by one point of each round; None if they were met in every round.

    Inconclusive: missed in some rounds only, or too few answers for a verdict.
    """
    if all(p.passed for p in points):
        return None
    missed = all(p.outcome is SloOutcome.MISSED for p in points)
    return CheckStatus.MISSED if missed else CheckStatus.INCONCLUSIVE


#: The deviation between nights is estimated from at least this many nights.
ENOUGH = 3
#: Most nights of an accepted result. Later nights are not added, or the baseline would follow a
#: slow loss.
MOST = 7
#: Degrees of freedom for each accepted night. More would call too many unchanged configs
#: regressions on the first nights; fewer would detect too few losses later. Simulated:
#: `benchmarks/claims/nights.py`.
FREEDOM = 3
#: A loss that exceeds ``warn`` by this many half intervals is detected in four nights of five: the
#: 80 % quantile of the normal distribution is 0.43 of its 97.5 % quantile.
_POWER = 1.43


def over_nights(tonight: Ratio, freedom: int, nights: Sequence[float], deviation: float) -> Ratio:
    """The ratio to the mean of the accepted nights, with the variance of nights in its interval.

    The rounds of one night do not show how nights differ: temperature, other guests of the host and
    the memory layout shift all rounds of a night together. The logarithm of the ratio of a night to
    the mean of N accepted nights is the true change, plus the effect of this night, minus the mean
    effect of the accepted nights, plus the noise of the rounds. Its variance is

        d^2 (1 + 1/N) + w (1 + 1/N) / 2,

    where d is the standard deviation between nights: ``deviation``, or from `ENOUGH` nights on the
    standard deviation of the accepted nights if that is larger (it includes the noise of their
    rounds, so the interval is rather too wide). w is the variance of the difference to one night,
    by this night's rounds (Higgins, Thompson and Spiegelhalter, A re-evaluation of random-effects
    meta-analysis, JRSS A 172, 2009: a further member of a population). The quantile is Student's,
    with the degrees of freedom of a sum of variances (Satterthwaite, Biometrics Bulletin 2, 1946);
    d^2 has `FREEDOM` N of them.

    Args:
        tonight: Ratio of this night to the first accepted night, with the interval of the rounds.
        freedom: Degrees of freedom of that interval, at least 1.
        nights: Each accepted night as a ratio to the first, which is 1.
        deviation: Standard deviation between nights, as a share.
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
    """Whether neither a loss nor a gain above ``warn`` is certain, so that the night may be added.

    Gains count like losses: adding only good nights would raise the mean.
    """
    return ratio.high >= 1.0 - warn and ratio.low <= 1.0 / (1.0 - warn)


def detectable_loss(ratio: Ratio, warn: float) -> float:
    """The loss, as a share, that an interval of this width detects in four nights of five."""
    return 1.0 - (1.0 - warn) * math.pow(ratio.estimate / ratio.high, _POWER)
