"""How many requests a second to expect of the deployed config, for windows that are long enough."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuner.measurement.measurement import LoadPoint, Measurement


@dataclass
class Rates:
    """What a closed loop answered so far; an open loop's rate is what is asked for.

    Attributes:
        alone_s: What one request took by itself; None while it is not known.
        slowest_s: The same of the stream whose requests take longest.
    """

    alone_s: float | None = None
    slowest_s: float = 0.0
    _answered: dict[float, float] = field(default_factory=dict)  # requests a second by clients

    def seen(self, measurement: Measurement) -> None:
        load = measurement.load
        if not load.arrivals.open_loop and measurement.completed_count:
            rate = measurement.completed_count / measurement.duration_s
            self._answered[load.level] = rate

    def expected(self, load: LoadPoint) -> float | None:
        """A lower bound, as far as is known; None where nothing is.

        More clients are assumed to get at least as much as fewer did, and fewer their share.
        """
        if load.arrivals.open_loop:
            return load.level
        fewer = [rate for level, rate in self._answered.items() if level <= load.level]
        share = [rate * load.level / n for n, rate in self._answered.items() if n > load.level]
        alone = [1.0 / self.alone_s] if self.alone_s else []
        return max((*fewer, *alone), default=min(share, default=None))
