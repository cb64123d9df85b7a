"""The interface of everything that can put load on a model and measure the answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tuner.load.measurement import LoadPoint, Measurement


@dataclass(frozen=True)
class Window:
    """How long to measure.

    Attributes:
        duration_s: Length of the measured window.
        warmup_s: Load before it that is not counted.
        deadline_s: The whole run is killed after this long.
    """

    duration_s: float
    warmup_s: float
    deadline_s: float


class LoadGenerator(Protocol):
    """Measures the model it was made for, on the server it was made for."""

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        """Puts ``load`` on the model and reports what happened.

        Args:
            load: Arrivals and level.
            window: Warm-up, length and deadline.
            seed: Seed of arrivals and input order (closed loops: input order only).

        Raises:
            LoadFailedError: No usable result; the message carries the generator's own words.
            ServerGoneError: The server stopped answering meanwhile.
        """
