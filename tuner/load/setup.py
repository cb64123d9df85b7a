"""What every load generator needs: the streams on one clock, and their server."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.load import seeds
from tuner.load.latency import Observed
from tuner.load.traffic.arrivals import (
    SLACK_S,
    Shape,
    Times,
    arrivals_of,
    expected_requests,
)
from tuner.load.traffic.encoding import build
from tuner.load.traffic.inputs import InputSource
from tuner.load.traffic.kind import Traffic
from tuner.load.traffic.turns import evenly, in_order
from tuner.load.traffic.wire import RequestForm
from tuner.load.watch.machine import watch_stalls
from tuner.load.watch.sampler import (
    Sampler,
    becomes_idle,
    host_use,
    server_statistics,
)
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.server.binaries import Installation
from tuner.server.control import Control, StatisticsSnapshot
from tuner.server.server import Endpoints, Place
from tuner.spec.fields import Gpus
from tuner.spec.workload import Inputs, Protocol, RandomInputs

#: The stream of each request in a run, as an index into the streams.
Order = npt.NDArray[np.int64]

#: perf_analyzer may take this long to exit after it has written its results.
PATIENCE_S = 0.5
#: Requests in a block of a closed loop, whose window is unknown beforehand, with exact shares.
_SPAN = 100
#: Why there are no results when a load generator's time is up.
TOO_LATE = "no results by the deadline"


@dataclass(frozen=True)
class LoadTarget:
    """How the model under load receives requests.

    Attributes:
        streamed: The model is decoupled: it receives requests through gRPC streams.
    """

    endpoints: Endpoints
    protocol: Protocol = Protocol.GRPC
    streamed: bool = False

    @property
    def address(self) -> str:
        """``host:port`` that requests go to."""
        return self.endpoints.grpc if self.protocol is Protocol.GRPC else self.endpoints.http

    def future_by(self, method: Any) -> Callable[..., Any]:
        """The function of `tuner.load.client.calls.asking` for such a model."""
        way: Callable[..., Any] = method.streamed if self.streamed else method.future
        return way


@dataclass(frozen=True)
class ShapedInputs:
    """The inputs of a stream's requests of one shape.

    Attributes:
        name: Name of the shape; "" if all requests have the same.
        share: Share of the stream's requests, 0..1.
    """

    inputs: InputSource
    name: str = ""
    share: float = 1.0


@dataclass(frozen=True)
class StreamRequests:
    """The requests of a stream according to the spec alone: a `StreamSpec` with derived values.

    Attributes:
        inputs: The spec of its inputs.
        batch_size: Inferences in one request.
        share: Share of the level of the load, 0..1.
        rate_per_s: Background streams only: requests per second, whatever the level; else None.
        priority: Priority of its requests; 0: none.
        varied: With a response cache, names of request parameters that the model may read: answers
            are also compared for requests that only the cache takes for the same; else None.
        within_s: The tightest bound of an SLO on the latency of a request.
        version: Version of the model; 0: the server's choice.
    """

    model: str
    inputs: Inputs = field(default_factory=lambda: RandomInputs(kind="random"))
    batch_size: int = 1
    share: float = 1.0
    rate_per_s: float | None = None
    priority: int = 0
    varied: tuple[str, ...] | None = None
    within_s: float = math.inf
    version: int = 0


@dataclass(frozen=True)
class Stream:
    """The requests of a stream on a running server, which defines their form.

    Attributes:
        target: How the model receives them.
        shapes: Inputs by shape; each request has one shape.
        requests: The stream according to the spec.
    """

    name: str
    target: LoadTarget
    form: RequestForm
    shapes: tuple[ShapedInputs, ...]
    requests: StreamRequests

    @property
    def background(self) -> bool:
        return self.requests.rate_per_s is not None

    def questions(self, count: int) -> list[bytes]:
        """Requests with the stream's first inputs, all shapes evenly mixed.

        If the model takes sequences, each request is a complete sequence.

        Raises:
            LoadFailedError: Only perf_analyzer can send them.
            SpecError: The user's file has sequences, or cannot be read.
        """
        turns = evenly([shape.share for shape in self.shapes], count)[:count]
        of_each = np.bincount(turns, minlength=len(self.shapes)).tolist()
        built = [
            build(shape.inputs.first(max(steps, 1) * self.form.batch_size), self.form, steps)
            for shape, steps in zip(self.shapes, of_each, strict=True)
        ]
        made = built[0] if len(built) == 1 else in_order(built, turns)
        return self.form.alone(made)

    @property
    def takes_sequences(self) -> bool:
        return self.form.sequence_ids is not None

    def load(self, load: LoadPoint) -> LoadPoint:
        """Its part of a load on all streams; beside sequences, single requests are Poisson."""
        single = load.arrivals is Arrivals.SEQUENCES and not self.takes_sequences
        kind = Arrivals.POISSON if single else load.arrivals
        if self.requests.rate_per_s is None:
            return LoadPoint(kind, self.requests.share * load.level)
        steady = kind is Arrivals.STEP  # an overload applies to the shared streams only
        return LoadPoint(Arrivals.POISSON if steady else kind, self.requests.rate_per_s)


@dataclass(frozen=True)
class Site:
    """The server under load, and what a load generator needs there.

    Attributes:
        control: Interface to the server's models.
        endpoints: Addresses of the server.
        program: The load generator's installation.
        directory: Directory for files of a measurement.
        place: Where the server runs; ELSEWHERE assumes nothing about this machine.
        gpus: GPUs of the server.
        patience_s: See `PATIENCE_S`; long for servers that tune cannot restart.
        server_words: Returns the last error in the server's log; empty if it cannot be read.
    """

    control: Control
    endpoints: Endpoints
    program: Installation
    directory: Path
    place: Place = Place.ELSEWHERE
    gpus: Gpus = "all"
    patience_s: float = PATIENCE_S
    server_words: Callable[[], str] = str


@dataclass(frozen=True)
class Setup:
    """The streams of a load, their server, and the means to watch it.

    Attributes:
        models: Names of all models that take part in answers, including steps of ensembles.
        shape: Gaps of a trace, or the shape of bursts.
        traffic: Kinds of traffic other than independent requests.
    """

    site: Site
    streams: tuple[Stream, ...]
    models: tuple[str, ...]
    shape: Shape | None = None
    traffic: tuple[Traffic, ...] = ()

    @contextmanager
    def watched(self, window: Window) -> Iterator[Sampler]:
        """Samples the server and this machine's stalls while the context is open."""
        site = self.site

        def snapshot() -> Mapping[str, StatisticsSnapshot]:
            return {name: site.control.statistics(name) for name in self.models}

        with (
            watch_stalls(window.tightest) as stalls,
            Sampler(
                snapshot, site.control.metrics, site.place, gpus=site.gpus, stalls=stalls
            ) as sampler,
        ):
            yield sampler

    def with_readings(
        self, result: Measurement, observed: Observed, watched: Sampler
    ) -> Measurement:
        """Adds the server's statistics, also by stream, and the readings of the machine."""
        samples = watched.between(observed.start_ns, observed.end_ns)
        counted = server_statistics(samples, self.models)
        models = {stream.name: stream.requests.model for stream in self.streams}
        model, *others = {*models.values()}
        streams = {
            name: replace(part, server=counted.get(models[name]))
            for name, part in result.streams.items()
        }
        return replace(
            result,
            server=None if others else counted.get(model),
            models=counted,
            streams=streams,
            host=host_use(samples, self.models, watched.stalls, watched.quota),
        )

    def at_rest(self) -> bool:
        """Whether the server is idle again after a load that was cut off."""
        return becomes_idle(self.site.control.metrics, self.models, self.site.endpoints)


@dataclass(frozen=True)
class Schedule:
    """The requests of all streams on one clock; ``due_s`` is None in a closed loop.

    Attributes:
        due_s: When each request is due, in seconds from the start, ascending.
        order: Index of each request's stream; repeated in a closed loop.
        shapes: Index of each request's shape among its stream's; None with one shape per stream.
        lines: Number of each request in the recording that is replayed, or in its file of
            sequences; None otherwise.
        sequences: Number of each request's sequence, -1 without one; None without any sequences.
    """

    due_s: Times | None
    order: Order
    shapes: Order | None = None
    lines: Order | None = None
    sequences: Order | None = None

    def shape_of_each(self) -> Order:
        return np.zeros_like(self.order) if self.shapes is None else self.shapes

    def of(self, number: int) -> Times:
        """When the requests of one stream are due; empty for a closed loop."""
        return np.array([]) if self.due_s is None else self.due_s[self.order == number]


def schedule(
    streams: Sequence[Stream],
    load: LoadPoint,
    window: Window,
    seed: int,
    shape: Shape | None,
    traffic: Sequence[Traffic] = (),
) -> Schedule:
    """Arrivals of every stream until the load ends; for a closed loop, the order of the streams.

    Args:
        load: The level, which is that of all streams together that share it.
        window: Lengths of warm-up, window and tail.
        seed: The same load and seed give the same times; streams do not affect each other's.
        shape: Gaps of a trace, or the shape of bursts.
        traffic: Kinds of traffic other than independent requests.
    """
    if load.arrivals.open_loop:
        made = (kind.schedule(streams, load, window, seed) for kind in traffic)
        first = next((plan for plan in made if plan is not None), None)
        plan = first or _independent(streams, load, window, seed, shape)
        assert plan.due_s is not None
        ends_s = np.cumsum(spans_of(window))
        spans = np.searchsorted(ends_s, plan.due_s, side="right").astype(np.int64)
    else:
        plan = Schedule(None, in_turn(streams, expected_requests(load, window.total_s)))
        spans = np.arange(plan.order.size) // _SPAN
    for kind in traffic:
        plan = kind.mark(plan, streams, spans, seed)
    return plan


def spans_of(window: Window) -> tuple[float, float, float]:
    """Lengths of warm-up, window and tail, for which arrivals are drawn."""
    return window.warmup_s, window.duration_s, window.tail_s + SLACK_S


def _independent(
    streams: Sequence[Stream], load: LoadPoint, window: Window, seed: int, shape: Shape | None
) -> Schedule:
    times = list[Times]()
    for stream in streams:
        stream_seed = seeds.of_stream(seed, stream.name, streams)
        due_s = arrivals_of(stream.load(load), spans_of(window), stream_seed, shape)
        times.append(due_s[due_s < window.total_s])
    return on_one_clock(times)


def on_one_clock(
    times: Sequence[Times], numbers: Sequence[Order] = (), entries: Sequence[Order] = ()
) -> Schedule:
    """The requests of all streams in ascending order of due times.

    Args:
        times: Due times by stream.
        numbers: Numbers of the requests' sequences, by stream.
        entries: Places of the requests in a file of sequences, by stream.
    """
    due_s = np.concatenate(times)
    order = np.repeat(np.arange(len(times)), [times_of.size for times_of in times])
    by_time = np.argsort(due_s, kind="stable")
    sequences = np.concatenate(numbers)[by_time] if numbers else None
    lines = np.concatenate(entries)[by_time] if entries else None
    return Schedule(due_s[by_time], order[by_time], lines=lines, sequences=sequences)


def in_turn(streams: Sequence[Stream], count: int) -> Order:
    """The stream of each of ``count`` requests in a closed loop, according to shares.

    A background stream has a rate and no share, and sends none of them.
    """
    return evenly(
        [0.0 if stream.background else stream.requests.share for stream in streams], count
    )
