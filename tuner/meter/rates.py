"""How many requests a second to expect of the deployed config, for windows that are long enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from tuner.measurement.measurement import LoadPoint, Measurement

#: A model that takes longer for a request gets this many requests, one after another, or as many as
#: it answers in this time.
SLOW_S, LOOK_ANSWERS, LOOK_S = 0.2, 5, 60.0


def slow_answers_s(ask: Callable[[], Mapping[str, float] | None]) -> Mapping[str, float] | None:
    """Mean seconds of a slow model's answers, by what is asked; None of a fast one.

    ``ask``: one time after another; None for models that cannot be asked in this way.
    """
    taken: list[Mapping[str, float]] = []
    while len(taken) < LOOK_ANSWERS and sum(took_s[""] for took_s in taken) <= LOOK_S:
        took_s = ask()
        if took_s is None or max(took_s.values()) < SLOW_S:
            return None
        taken.append(took_s)
    return {name: fmean(took_s[name] for took_s in taken) for name in taken[0]}


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
