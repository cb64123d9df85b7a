"""A first load that is too high for a result is lowered until one comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from tuner.bench.again import TOO_HIGH
from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError, TrialError
from tuner.score.capacity import LevelRange, NoResult

#: It is lowered to this share of what the load generator did send; without a result, to half the
#: level.
BELOW_SENT, BELOW = 0.9, 0.5

Result = TypeVar("Result")


@dataclass
class FromAbove(Generic[Result]):
    """Measures at a level, or at the first below it that gives a result.

    Attributes:
        levels: Allowed ones; lowered to what the load generator can send once that is known.
        drowned: Loads that gave no result though they were sent.
        client_limit: What the load generator could not send; None while it could.
    """

    measure: Callable[[float], Result]
    levels: LevelRange
    drowned: list[NoResult] = field(default_factory=list)
    client_limit: ClientLimitError | None = None
    steps: int = 0

    def result(self, level: float) -> Result:
        """The first result.

        Raises:
            TrialError: There is none, or it was not for the load: the model itself fails.
        """
        level = self.levels.nearest(level)
        while True:
            try:
                return self.measure(level)
            except (ClientLimitError, LoadFailedError) as error:
                level = self.lower(error, level)

    def lower(self, error: TrialError, level: float) -> float:
        """The next load to try after ``level`` gave no result; raises ``error`` without one."""
        self.steps += 1
        if self.steps > TOO_HIGH.at_most or isinstance(error, ModelFailsError):
            raise error
        if isinstance(error, ClientLimitError):
            self.client_limit = error
            lower = self.levels.nearest(below_sent(error, level))
            self.levels = replace(self.levels, highest=lower)
        else:
            self.drowned.append(NoResult(level))
            lower = self.levels.nearest(BELOW * level)
        if lower >= level:
            raise error
        return lower


def below_sent(error: ClientLimitError, level: float) -> float:
    """What the load generator can send, where ``level`` was too much for it."""
    return BELOW * level if error.sent_per_s is None else BELOW_SENT * min(error.sent_per_s, level)
