"""What the rounds so far decide: a gain, none worth a change, or neither yet.

All looks at all finalists share one error (Bonferroni); later looks get more of it (Lan and DeMets,
Discrete sequential boundaries for clinical trials, 1983).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from tuner.score.ratio import ERROR, Ratio

#: Of the rounds at most, those after which is looked, and the share of the error that each look
#: spends. Of twelve: after 3, 5, 8 and 12. Simulated: `benchmarks/claims/proof.py`.
LOOKS = ((0.25, 0.10), (0.4, 0.15), (0.65, 0.25), (1.0, 0.50))
#: An interval of fewer rounds tells nothing.
FEWEST = 3


@dataclass(frozen=True)
class Look:
    """A look at the rounds.

    Attributes:
        error: Of the interval of each finalist, both sides together.
        last: No further rounds are made.
    """

    error: float
    last: bool


def look_after(rounds: int, at_most: int, finalists: int, *, late: bool = False) -> Look | None:
    """The look that is due after so many rounds; None where none is.

    ``late``: the time is over, so this is the last look, and it spends all that is left. Rounds
    beyond ``at_most`` are those of a proof that the user continued: one look when the time is over,
    which spends half of the error once more.
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
    """What a look says of one finalist."""

    BETTER = "better, by an estimate that is worth a change"
    NO_GAIN = "the estimate is not worth a change"
    OPEN = "the estimate is worth a change, and the interval includes no gain"


def answer(ratio: Ratio, min_gain: float) -> LookResult:
    """By a finalist's ratio to the current config; ``min_gain`` is a share.

    A finalist is better only where both hold: its interval is above one, and its estimate above
    the least gain worth a change. An estimate below that ends the comparison at any look: few
    configs that are truly worth a change look so (simulated: `benchmarks/claims/proof.py`). A
    ratio without an upper end says nothing of the gain.
    """
    if ratio.estimate > 1.0 + min_gain:
        return LookResult.BETTER if ratio.low > 1.0 else LookResult.OPEN
    return LookResult.NO_GAIN if math.isfinite(ratio.high) else LookResult.OPEN
