"""A first load that is too high for a result is lowered until one comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from tuner.bench.again import TOO_HIGH
from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError, TrialError
from tuner.score.capacity import LevelRange, NoResult
from tuner.score.next_load import Steps, next_load

#: It is lowered to this share of what the load generator did send, where that is known.
UNSENT = Steps(of_served=0.9)

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
        sent_per_s = error.sent_per_s if isinstance(error, ClientLimitError) else None
        lower = next_load([NoResult(level, sent_per_s)], self.levels, UNSENT)
        if lower is None or self.steps > TOO_HIGH.at_most or isinstance(error, ModelFailsError):
            raise error
        if isinstance(error, ClientLimitError):
            self.client_limit = error
            self.levels = replace(self.levels, highest=lower)
        else:
            self.drowned.append(NoResult(level))
        return lower
