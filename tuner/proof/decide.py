"""What the rounds so far decide: a gain, none that matters, or neither yet.

All looks at all finalists share one error (Bonferroni); later looks get more of it (Lan and DeMets,
Discrete sequential boundaries for clinical trials, 1983).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from tuner.score.ratio import ERROR, Ratio

#: Of the rounds at most, those after which is looked, and the share of the error that each look
#: spends. Of ten: after 3, 5, 7 and 10. Simulated: `benchmarks/claims/proof.py`.
LOOKS = ((0.3, 0.10), (0.5, 0.15), (0.7, 0.25), (1.0, 0.50))
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

    ``late``: the time is over, so this is the last look, and it spends all that is left.
    """
    due = [(max(math.ceil(share * at_most - 1e-9), FEWEST), spent) for share, spent in LOOKS]
    left = sum(spent for after, spent in due if after >= rounds)
    now = sum(spent for after, spent in due if after == rounds)
    last = rounds >= due[-1][0] or (late and rounds >= FEWEST)
    spent = left if last else now
    return Look(ERROR * spent / max(finalists, 1), last) if spent else None


class LookResult(Enum):
    """What a look says of one finalist."""

    BETTER = "better by more than a change must be worth"
    RULED_OUT = "not better by as much as is to be ruled out"
    OPEN = "neither is shown"


def answer(ratio: Ratio, min_gain: float, rule_out: float, look: Look) -> LookResult:
    """By the interval of a finalist's ratio to the current config; gains are shares.

    Before the last look, a gain below ``rule_out`` that seems worth a change is still looked for.
    """
    if ratio.low > 1.0 + min_gain:
        return LookResult.BETTER
    hopeful = ratio.estimate > 1.0 + min_gain and not look.last
    return LookResult.RULED_OUT if ratio.high < 1.0 + rule_out and not hopeful else LookResult.OPEN
