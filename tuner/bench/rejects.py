"""Which measurements do not count, and why; each is passed on, none is lost silently."""

from __future__ import annotations

from collections.abc import Callable

from tuner.load.validity import client_kept_up
from tuner.measurement.measurement import Measurement, Rejected, Stage


def doubt_about(measurement: Measurement) -> str:
    """Why a measurement is to be repeated; empty when it can be believed."""
    if not client_kept_up(measurement):
        return "the load generator could not keep up"
    return " ".join(measurement.disturbances)


class Rejects:
    """Follows the measurements of one candidate after the other.

    Args:
        sink: Keeps what is rejected.

    Attributes:
        stage: What is being measured for.
    """

    def __init__(self, sink: Callable[[Rejected], None]) -> None:
        self._sink = sink
        self._candidate_key = ""
        self._kept: list[Measurement] = []
        self.stage = Stage.SEARCH

    def begin(self, candidate_key: str) -> None:
        """Another candidate, or the same one again: earlier measurements are settled."""
        self._candidate_key = candidate_key
        self._kept = []

    def keep(self, measurement: Measurement) -> None:
        """It counts, if the trial comes to its end."""
        self._kept.append(measurement)

    def reject(self, reason: str, measurement: Measurement) -> None:
        self.failed(reason, measurement.load.level, measurement.wall_s, measurement)

    def failed(
        self, reason: str, level: float, wall_s: float, measurement: Measurement | None = None
    ) -> None:
        """Passes on a measurement that does not count."""
        found = Rejected(reason, self._candidate_key, level, wall_s, self.stage, measurement)
        self._sink(found)

    def trial_lost(self, reason: str) -> None:
        """Rejects all that a failed trial measured; a confirmation has stored its rows."""
        if self.stage is Stage.SEARCH:
            for measurement in self._kept:
                self.reject(f"its trial ended without a result: {reason}", measurement)
        self._kept = []
