"""A first load that is too high for a result is lowered until one comes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from tuner.bench.again import TOO_HIGH
from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError, TrialError
from tuner.load.validity import client_behind, client_kept_up
from tuner.measurement.measurement import Measurement
from tuner.score.capacity import LevelRange, NoResult
from tuner.score.next_load import Steps, next_load

#: It is lowered to this share of what the load generator did send, where that is known.
UNSENT = Steps(of_served=0.9)

Result = TypeVar("Result")


@dataclass
class Sendable:
    """What the load generator can send, as far as was seen: no load above ``most`` is asked for."""

    most: float = math.inf
    sent: float = 0.0

    @classmethod
    def seen(cls, measured: Iterable[Measurement]) -> Sendable:
        """By what an earlier part of the run has measured."""
        found = cls()
        for m in measured:
            if client_kept_up(m):
                found.kept_up(m.load.level)
            else:
                found.fell_behind(client_behind(m), m.load.level)
        return found

    def kept_up(self, level: float) -> None:
        self.sent = max(self.sent, level)
        self.most = max(self.most, level)

    def fell_behind(self, error: ClientLimitError, level: float) -> None:
        """Keeps the bound if it has sent as much before: that was the config's fault, or chance."""
        lower = below_unsent(error, level, LevelRange(0.0, math.inf))
        if level > self.sent and lower is not None:
            self.most = max(min(self.most, lower), self.sent)


@dataclass
class FromAbove(Generic[Result]):
    """Measures at a level, or at the first below it that gives a result.

    Attributes:
        levels: Allowed ones; lowered to what the load generator can send once that is known.
        drowned: Loads that gave no result though they were sent.
    """

    measure: Callable[[float], Result]
    levels: LevelRange
    drowned: list[NoResult] = field(default_factory=list)
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
        lower = below_unsent(error, level, self.levels)
        if lower is None or self.steps > TOO_HIGH.at_most or isinstance(error, ModelFailsError):
            raise error
        if isinstance(error, ClientLimitError):
            limited = not self.levels.whole  # more clients need not get more
            self.levels = replace(self.levels, highest=lower, limited=limited)
        else:
            self.drowned.append(NoResult(level))
        return lower


def below_unsent(error: TrialError, level: float, levels: LevelRange) -> float | None:
    """The load below one that gave no result; None where there is none."""
    sent_per_s = error.sent_per_s if isinstance(error, ClientLimitError) else None
    return next_load([NoResult(level, sent_per_s)], levels, UNSENT)
