"""The expected requests per second of the deployed config, for windows that are long enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from tuner.measurement.measurement import LoadPoint, Measurement

#: Requests that take this long, in seconds, are timed by single calls: a look would have too few.
SLOW_S = 0.2
#: Likewise where no stream is faster than this, in seconds: a single call adds 0.2 ms.
TIMED_S = 0.005
#: Number of single calls, one after another, and the time in seconds after which no more begin.
LOOK_ANSWERS, LOOK_S = 5, 60.0


def mean_answers_s(call: Callable[[], Mapping[str, float] | None]) -> Mapping[str, float] | None:
    """Mean seconds of single requests, by stream; None where a load generator times them better.

    ``call``: sends one request of each stream, and returns the seconds by stream, with the mean
    under ``""``; None for models that take no single requests.
    """
    taken: list[Mapping[str, float]] = []
    while len(taken) < LOOK_ANSWERS and sum(took_s[""] for took_s in taken) <= LOOK_S:
        took_s = call()
        if took_s is None:
            return None
        if max(took_s.values()) < SLOW_S and min(took_s.values()) < TIMED_S:
            return None
        taken.append(took_s)
    return {name: fmean(took_s[name] for took_s in taken) for name in taken[0]}


@dataclass
class Rates:
    """The rates of one config's closed loops so far; in an open loop, the rate is the level.

    Attributes:
        alone_s: Seconds of a single request, the mean over the streams; None while not known.
        slowest_s: Seconds of a single request of the slowest stream.
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
        """A lower bound on the requests per second under ``load``; None where not known.

        It assumes that more clients get at least the throughput of fewer ones, and fewer clients
        their share of the throughput of more.
        """
        if load.arrivals.open_loop:
            return load.level
        fewer = [rate for level, rate in self._answered.items() if level <= load.level]
        share = [rate * load.level / n for n, rate in self._answered.items() if n > load.level]
        alone = [1.0 / self.alone_s] if self.alone_s else []
        return max((*fewer, *alone), default=min(share, default=None))
