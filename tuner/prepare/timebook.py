"""Accounts for the wall time of a run: every second belongs to exactly one phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum


class Phase(Enum):
    STARTING = "starting_s"  # reading, checking, finding programs
    SEARCHING = "searching_s"  # choosing candidates
    DEPLOYING = "deploying_s"  # starting servers, loading models
    MEASURING = "measuring_s"  # loads, from start to end
    WAITING = "waiting_s"  # for a machine whose CPU others took
    WRITING = "writing_s"  # storing, reporting, writing back


class TimeBook:
    """Adds elapsed time to phases. Phases nest: the innermost one gets the time.

    Args:
        clock: Monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stack = [Phase.STARTING]
        self._since = clock()
        self._booked = dict.fromkeys(Phase, 0.0)
        self._at_lap = dict(self._booked)

    def carry(self, seconds: Mapping[str, float]) -> None:
        """Adds the seconds of each phase in the earlier part of a resumed run."""
        for phase in Phase:
            self._booked[phase] += seconds.get(phase.value, 0.0)

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        self._book()
        self._stack.append(phase)
        try:
            yield
        finally:
            self._book()
            self._stack.pop()

    def seconds(self, phase: Phase) -> float:
        """Seconds of the phase so far."""
        self._book()
        return self._booked[phase]

    @property
    def wall_s(self) -> float:
        """Seconds of all phases so far."""
        self._book()
        return sum(self._booked.values())

    def lap(self) -> dict[Phase, float]:
        """Seconds by phase since the last lap."""
        self._book()
        spent = {phase: s - self._at_lap[phase] for phase, s in self._booked.items()}
        self._at_lap = dict(self._booked)
        return spent

    def to_json(self) -> dict[str, float]:
        """Seconds by phase and their sum, ``wall_s``."""
        wall_s = self.wall_s
        parts = {p.value: round(s, 3) for p, s in self._booked.items()}
        return {"wall_s": round(wall_s, 3), **parts}

    def _book(self) -> None:
        now = self._clock()
        self._booked[self._stack[-1]] += now - self._since
        self._since = now
