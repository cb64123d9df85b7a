"""What the rounds so far decide: a gain, no gain worth a change, or neither yet.

All looks at all finalists share one error probability (Bonferroni); later looks get a larger part
(Lan and DeMets, Discrete sequential boundaries for clinical trials, 1983).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from tuner.score.ratio import ERROR, Ratio

#: For each look: after which share of the maximum number of rounds, and the share of the error
#: probability that it spends. Of 12 rounds: after 3, 5, 8 and 12. Simulated:
#: `benchmarks/claims/proof.py`.
LOOKS = ((0.25, 0.10), (0.4, 0.15), (0.65, 0.25), (1.0, 0.50))
#: An upper end of a ratio above this bounds no gain: the rounds vary too much.
UNBOUNDED = 2.0
#: Fewest rounds before a look: intervals of fewer rounds are too wide to decide.
FEWEST = 3


@dataclass(frozen=True)
class Look:
    """An interim analysis of the rounds.

    Attributes:
        error: Probability, 0 to 1, that the interval of one finalist misses the true ratio, both
            ends together.
        last: No further rounds are measured.
    """

    error: float
    last: bool


def look_after(rounds: int, at_most: int, finalists: int, *, late: bool = False) -> Look | None:
    """The look that is due after a number of ``rounds``; None where none is due.

    Rounds beyond ``at_most`` are those of a proof that the user continued: one look is due, when
    the time is over, and spends half of the error probability once more.

    Args:
        at_most: The maximum number of rounds, ``confirm.rounds`` of the spec.
        finalists: The number of finalists, which share the error probability.
        late: The time is over, so this look is the last, and spends the rest of the error
            probability.
    """
    if rounds > at_most:
        return Look(ERROR / 2.0 / max(finalists, 1), last=True) if late else None
    due = [(max(math.ceil(share * at_most - 1e-9), FEWEST), spent) for share, spent in LOOKS]
    left = sum(spent for after, spent in due if after >= rounds)
    now = sum(spent for after, spent in due if after == rounds)
    last = rounds >= due[-1][0] or (late and rounds >= FEWEST)
    spent = left if last else now
    return Look(ERROR * spent / max(finalists, 1), last) if spent else None


class LookResult(Enum):
    """What a look shows about one finalist."""

    BETTER = "better, by an estimate that is worth a change"
    NO_GAIN = "the estimate is not worth a change"
    OPEN = "the interval includes no gain, and gains that are worth a change"


def answer(ratio: Ratio, min_gain: float) -> LookResult:
    """What a finalist's ratio to the current config shows.

    A finalist is better only if its interval is above 1 and its estimate is above the least gain
    worth a change. A lower estimate ends the comparison at any look: few configs that are truly
    worth a change have one (simulated: `benchmarks/claims/proof.py`). A ratio whose interval has no
    upper end, or one above `UNBOUNDED`, decides nothing against the finalist.

    ``min_gain``: the least gain worth a change, as a share: 0.05 is 5%.
    """
    if ratio.estimate > 1.0 + min_gain:
        return LookResult.BETTER if ratio.low > 1.0 else LookResult.OPEN
    return LookResult.NO_GAIN if ratio.high <= UNBOUNDED else LookResult.OPEN
