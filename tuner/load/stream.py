"""A stream of requests to one model, and how the streams of a mix come on one clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tuner.load import seeds
from tuner.load.generator import Target
from tuner.load.traffic.arrivals import Shape, Times, arrivals_of
from tuner.load.traffic.encoding import RequestForm
from tuner.load.traffic.inputs import InputFiles
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window

#: Which stream each request of a run belongs to, as its place among the streams.
Order = npt.NDArray[np.int64]

_SLACK_S = 2.0  # perf_analyzer is given arrivals for so much longer; the same draw needs the same
_GOLDEN = (5.0**0.5 - 1.0) / 2.0


@dataclass(frozen=True)
class Stream:
    """Requests to one model.

    Attributes:
        rate_per_s: Requests per second, whatever the level, of a background; None of a stream
            that shares the level.
    """

    name: str
    target: Target
    form: RequestForm
    inputs: InputFiles
    share: float = 1.0
    rate_per_s: float | None = None

    @property
    def background(self) -> bool:
        return self.rate_per_s is not None

    def load(self, load: LoadPoint) -> LoadPoint:
        """Its part of a load on all streams."""
        if self.rate_per_s is None:
            return replace(load, level=self.share * load.level)
        steady = load.arrivals is Arrivals.STEP  # an overload is one of the shared streams
        return LoadPoint(Arrivals.POISSON if steady else load.arrivals, self.rate_per_s)


@dataclass(frozen=True)
class Schedule:
    """The requests of an open loop on one clock."""

    due_s: Times
    order: Order

    def of(self, number: int) -> Times:
        """When the requests of one stream are due."""
        due_s: Times = self.due_s[self.order == number]
        return due_s


def schedule(
    streams: Sequence[Stream], load: LoadPoint, window: Window, seed: int, shape: Shape | None
) -> Schedule:
    """Independent arrivals of each stream, until the load ends.

    Args:
        load: Its level is that of the streams which share it, together.
        seed: Same load and seed, same times; a stream's own do not hang on the others.
    """
    spans_s = (window.warmup_s, window.duration_s, window.tail_s + _SLACK_S)
    times = []
    for stream in streams:
        own = seeds.of_stream(seed, stream.name, streams)
        due_s = arrivals_of(stream.load(load), spans_s, own, shape)
        times.append(due_s[due_s < window.total_s])
    return merged(times)


def merged(times: Sequence[Times]) -> Schedule:
    """The arrivals of several streams as one."""
    due_s = np.concatenate(times)
    order = np.repeat(np.arange(len(times)), [own.size for own in times])
    by_time = np.argsort(due_s, kind="stable")
    return Schedule(due_s[by_time], order[by_time])


def in_turn(streams: Sequence[Stream], count: int) -> Order:
    """Whose turn it is in a closed loop of about ``count`` requests: each stream by its share.

    Evenly mixed, also for processes that take every n-th turn (multiples of the golden ratio, less
    their whole parts, are spread evenly, and so are every n-th of them). A background, which has a
    rate and no share, has no turn.
    """
    shares = [0.0 if stream.background else stream.share for stream in streams]
    places = np.arange(max(count, 1)) * _GOLDEN % 1.0 * sum(shares)
    return np.searchsorted(np.cumsum(shares), places, side="right")
