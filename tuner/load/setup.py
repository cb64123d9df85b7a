"""What every load generator is made with: streams of requests on one clock, and their server."""

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

#: Which stream each request of a run belongs to, as its place among the streams.
Order = npt.NDArray[np.int64]

#: perf_analyzer may take this long to end by itself once its results are there.
PATIENCE_S = 0.5
#: So many requests of a closed loop, whose window is not known before, have their shapes by share.
_SPAN = 100
#: Why there are no results when the time of a load generator is over.
TOO_LATE = "no results by the deadline"


@dataclass(frozen=True)
class LoadTarget:
    """What load is put on; ``streamed``: a decoupled model, which is asked through gRPC streams."""

    model: str
    endpoints: Endpoints
    protocol: Protocol = Protocol.GRPC
    batch_size: int = 1
    streamed: bool = False

    @property
    def address(self) -> str:
        """host:port requests go to."""
        return self.endpoints.grpc if self.protocol is Protocol.GRPC else self.endpoints.http

    def future_by(self, method: Any) -> Callable[..., Any]:
        """How `tuner.load.client.calls.asking` asks such a model."""
        way: Callable[..., Any] = method.streamed if self.streamed else method.future
        return way


@dataclass(frozen=True)
class ShapedInputs:
    """What those requests of a stream carry that have one shape.

    Attributes:
        name: What the shape is called; "" where all requests have the same.
        share: Of the stream's requests.
    """

    inputs: InputSource
    name: str = ""
    share: float = 1.0


@dataclass(frozen=True)
class StreamRequests:
    """Requests to one model, by the spec alone: a `StreamSpec` with what follows of all streams.

    Attributes:
        share: Of the level of the load.
        rate_per_s: Requests per second, whatever the level, of a background; None of a stream
            that shares the level.
        varied: Where a response cache may answer, names of the request parameters that the model
            may read: answers are compared for requests, too, that only the cache takes for alike.
        within_s: The least that an SLO allows a request to take.
    """

    model: str
    inputs: Inputs = field(default_factory=lambda: RandomInputs(kind="random"))
    batch_size: int = 1
    share: float = 1.0
    rate_per_s: float | None = None
    priority: int = 0
    varied: tuple[str, ...] | None = None
    within_s: float = math.inf


@dataclass(frozen=True)
class Stream:
    """The requests of a stream on a running server, which says how their model is asked.

    Attributes:
        shapes: Those of the requests, of which each has one.
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
        """Requests with the first of its inputs, those of all shapes evenly mixed.

        Where the model takes sequences each is one of its own.

        Raises:
            LoadFailedError: Only perf_analyzer can send them.
            SpecError: The user's file holds sequences, or cannot be read.
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
        """Its part of a load on all streams; beside sequences, single requests come by chance."""
        single = load.arrivals is Arrivals.SEQUENCES and not self.takes_sequences
        kind = Arrivals.POISSON if single else load.arrivals
        if self.requests.rate_per_s is None:
            return LoadPoint(kind, self.requests.share * load.level)
        steady = kind is Arrivals.STEP  # an overload is one of the shared streams
        return LoadPoint(Arrivals.POISSON if steady else kind, self.requests.rate_per_s)


@dataclass(frozen=True)
class Site:
    """The server that load is put on, and what that needs.

    Attributes:
        place: Where the server runs; ELSEWHERE assumes nothing about this machine.
        patience_s: See `PATIENCE_S`; long for servers that are not ours to restart.
        server_words: The last error in the server's log; empty when it cannot be read.
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
    """Models on a server, what they are to be asked, and what watches them meanwhile.

    Attributes:
        models: Names of all models that answer to it, the steps of ensembles too.
        traffic: What is otherwise than with independent requests.
    """

    site: Site
    streams: tuple[Stream, ...]
    models: tuple[str, ...]
    shape: Shape | None = None
    traffic: tuple[Traffic, ...] = ()

    @contextmanager
    def watched(self, window: Window) -> Iterator[Sampler]:
        """Samples the server, and this machine's stalls, for as long as the context is open."""
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
        """Adds what the server counted meanwhile, of each stream too, and what the machine did."""
        samples = watched.between(observed.start_ns, observed.end_ns)
        counted = server_statistics(samples, self.models)
        models = {stream.name: stream.target.model for stream in self.streams}
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
        """Whether the server has come to rest after a load that was cut off."""
        return becomes_idle(self.site.control.metrics, self.models, self.site.endpoints)


@dataclass(frozen=True)
class Schedule:
    """The requests of all streams on one clock; ``due_s`` is None of a closed loop.

    Attributes:
        order: The stream of each, as its place; of a closed loop repeated.
        shapes: The shape of each, as its place among its stream's; None where each has only one.
        lines: The number of each in the recording that is replayed, or in its file of sequences.
        sequences: The number of each one's sequence, where there are any; -1 of what is in none.
    """

    due_s: Times | None
    order: Order
    shapes: Order | None = None
    lines: Order | None = None
    sequences: Order | None = None

    def shape_of_each(self) -> Order:
        return np.zeros_like(self.order) if self.shapes is None else self.shapes

    def of(self, number: int) -> Times:
        """When the requests of one stream are due; none of a closed loop."""
        return np.array([]) if self.due_s is None else self.due_s[self.order == number]


def schedule(
    streams: Sequence[Stream],
    load: LoadPoint,
    window: Window,
    seed: int,
    shape: Shape | None,
    traffic: Sequence[Traffic] = (),
) -> Schedule:
    """Independent arrivals of each stream, until the load ends; of a closed loop their turns.

    Args:
        load: Its level is that of the streams which share it, together.
        seed: Same load and seed, same times; a stream's own do not hang on the others.
        traffic: What is otherwise.
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
    """Warm-up, window and what follows it, for which arrivals are drawn."""
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
    """The requests of all streams, ascending.

    ``numbers``, ``entries``: the sequence of each and its place in a file of them, by stream.
    """
    due_s = np.concatenate(times)
    order = np.repeat(np.arange(len(times)), [times_of.size for times_of in times])
    by_time = np.argsort(due_s, kind="stable")
    sequences = np.concatenate(numbers)[by_time] if numbers else None
    lines = np.concatenate(entries)[by_time] if entries else None
    return Schedule(due_s[by_time], order[by_time], lines=lines, sequences=sequences)


def in_turn(streams: Sequence[Stream], count: int) -> Order:
    """Whose turn it is in a closed loop of about ``count`` requests: each stream by its share.

    A background, which has a rate and no share, has no turn.
    """
    return evenly(
        [0.0 if stream.background else stream.requests.share for stream in streams], count
    )
