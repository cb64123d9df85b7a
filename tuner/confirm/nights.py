"""The interval of a check over nights, since rounds of one night cannot tell how nights differ.

Temperature, neighbours on the host and the place in memory move all rounds of a night together. The
logarithm of the ratio of a night to the mean of N accepted ones is the true change, plus the effect
of this night, minus the mean effect of those, plus the noise of the rounds. If the effects have the
variance b, a further night is off that mean by b (1 + 1/N) (Higgins, Thompson and Spiegelhalter,
A re-evaluation of random-effects meta-analysis, JRSS A 172, 2009). Few nights tell little of b, so
it has a scaled inverse chi-squared prior (Gelman et al., Bayesian Data Analysis, section 2.6):

    b = (PRIOR_FREEDOM PRIOR_DEVIATION^2 + S) / (PRIOR_FREEDOM + N - 1),

where S is the sum of the squared deviations of the N nights from their mean (noise of their rounds
included, which errs on the wide side). Added is the variance of this night's rounds; the degrees of
freedom are Satterthwaite's (Biometrics Bulletin 2, 1946). Simulated: `benchmarks/nights.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.score.ratio import ERROR, Ratio, quantile

#: With fewer nights the interval is wide since little is known.
ENOUGH = 3
#: So many nights are kept, and then no more, so that a slow loss is seen: they do not follow it.
MOST = 7
#: What a night is off: eleven quiet nights (docs/measuring.md) deviate by 1.3 %, their rounds
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
