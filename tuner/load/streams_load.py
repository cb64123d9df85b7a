"""Load on the models of a server as a spec's streams say, and what is asked apart from it.

A closed loop is bistable: 32 clients can settle into one batch of 32 or into two of 16, and stay
there until the load ends. Only another start shows the other mode. So each measurement of a
closed loop consists of several starts, each with an equal part of the window and other inputs. The
total length is unchanged, but each start costs one more warm-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import fmean
from typing import Any

import numpy as np

from tuner.load import seeds
from tuner.load.generators import GENERATORS, GeneratorKind, LoadGenerator
from tuner.load.latency import latency_figures
from tuner.load.probes.answers import ConfigAnswers, ask
from tuner.load.probes.lone import LoneRequests, ask_alone
from tuner.load.probes.preparing import Filling, await_first_answers, fill, seconds_for, together
from tuner.load.probes.warming import FirstCalls
from tuner.load.probes.warmup import Note, WarmUp, warm_up
from tuner.load.recordings.lines import RecordedStream
from tuner.load.recordings.replay import recorded_traffic
from tuner.load.recordings.shaped import shaped_contents
from tuner.load.setup import LoadTarget, Setup, ShapedInputs, Site, Stream, in_turn
from tuner.load.traffic.arrivals import shape_of
from tuner.load.traffic.encoding import TensorShape, inputs_of, resolve
from tuner.load.traffic.inputs import InputFiles
from tuner.load.traffic.sequences import ids_for
from tuner.load.traffic.wire import RequestForm
from tuner.load.validity import warnings_about
from tuner.measurement.measurement import (
    FailureReason,
    Failures,
    HostUse,
    LoadPoint,
    Measurement,
    Restart,
    ServerStatistics,
)
from tuner.measurement.responses import responses_of_all
from tuner.measurement.window import LatencyBound, Window
from tuner.modelconfig.queues import may_reject
from tuner.server.control import Control
from tuner.spec.model import Spec
from tuner.spec.units import digits
from tuner.spec.workload import (
    ClosedArrivals,
    FileInputs,
    Inputs,
    Protocol,
    RandomInputs,
    RecordingInputs,
    Workload,
)

#: No start's window is shorter than this.
LEAST_S = 1.0
_ADDED_UP = ("duration_s", "completed_count", "failed_count", "rejected_count", "wall_s")
_AVERAGED = (
    "in_time_infer_per_s",
    *("throughput_infer_per_s", "sent_per_s", "mean_in_flight"),
    *("client_send_us", "client_recv_us", "network_us"),
)
#: Up to this ratio of the highest to the lowest throughput of a start, minus one, it is one mode.
SPREAD = 0.05


@dataclass(frozen=True)
class Asked:
    """What a stream asks; see `tuner.load.setup.Stream`."""

    model: str
    inputs: Inputs = field(default_factory=lambda: RandomInputs(kind="random"))
    batch_size: int = 1
    share: float = 1.0
    rate_per_s: float | None = None
    priority: int = 0


def asked_of(spec: Spec) -> dict[str, Asked]:
    """What each stream of a spec asks."""
    shares = spec.shares
    return {
        name: Asked(
            stream.model,
            stream.inputs,
            stream.batch_size,
            shares.get(name, 0.0),
            None if stream.rate is None else float(stream.rate),
            stream.priority or 0,
        )
        for name, stream in spec.streams.items()
    }


@dataclass(frozen=True)
class StreamsLoad:
    """Load by the generator of the run, and what is asked of the models apart from that.

    Attributes:
        starts: Of each closed loop; an open loop is started once.
    """

    generator: LoadGenerator
    starts: int
    setup: Setup

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        if len(self.setup.streams) == 1:  # a generator knows no name of what is all of its load
            bounds = window.of(self.setup.streams[0].name).bounds
            window = replace(window, bounds=tuple(replace(bound, stream="") for bound in bounds))
        if load.arrivals.open_loop or self.starts == 1:
            return self.generator.measure(load, window, seed)
        part = replace(window, duration_s=part_s(window.duration_s, self.starts))
        starts: list[Measurement] = []
        while len(starts) < self.starts:
            own = seeds.of_start(seed, len(starts))
            starts.append(self.generator.measure(load, part, own))
        return combine(starts, window.bounds)

    def answers(self) -> Mapping[str, ConfigAnswers]:
        """What is answered to some of each stream's inputs; see `probes.answers.ask`."""
        return {s.name: ask(s, self._config(s)) for s in self.setup.streams}

    def await_first_answers(self, patience_s: float, note: Note) -> list[FirstCalls]:
        """Those of each stream; see `tuner.load.probes.preparing`."""
        return [
            await_first_answers(s, self._config(s), patience_s, note) for s in self.setup.streams
        ]

    def warm_up(self, texts: Mapping[str, str], patience_s: float, note: Note) -> WarmUp | None:
        """See `tuner.load.probes.warmup`."""
        return warm_up(self.setup, texts, patience_s, note)

    def seconds_for(self, count: int, patience_s: float) -> float | None:
        """Sends requests at once, from each stream its share; see `probes.preparing`."""
        turns = in_turn(self.setup.streams, count).tolist()
        asked = [(stream, turns.count(k)) for k, stream in enumerate(self.setup.streams)]
        return seconds_for(asked, patience_s)

    def seconds_alone(self, patience_s: float) -> Mapping[str, float] | None:
        """One request of each stream by itself, and the mean of a mix as `""`."""
        found: dict[str, float] = {}
        for stream in self.setup.streams:
            took_s = seconds_for([(stream, 1)], patience_s)
            if took_s is None:
                return None
            found[stream.name] = took_s
        mean_s = sum(s.share * found[s.name] for s in self.setup.streams if not s.background)
        return {**found, "": mean_s}

    def ask_alone(self, stream: str, patience_s: float) -> LoneRequests | None:
        """Requests of a stream, one at a time; None where no queue policy refuses any."""
        configs = map(self.setup.site.control.running_config, self.setup.models)
        if not any(map(may_reject, configs)):
            return None
        own = next(s for s in self.setup.streams if stream in ("", s.name))
        return ask_alone(own, patience_s)

    def fill(self, seed: int, size: int | None) -> Filling:
        """Fills an empty cache of this size in bytes; see `probes.preparing.fill`.

        The stream with most requests comes last: an LRU cache drops its entries last.
        """
        streams = [s for s in self.setup.streams if self._config(s).response_cache.enable]
        streams.sort(key=lambda s: 0.0 if s.background else s.share)
        return together([fill(s, seed, size) for s in streams or self.setup.streams])

    def _config(self, stream: Stream) -> Any:
        return self.setup.site.control.running_config(stream.target.model)


def streams_load(
    workload: Workload,
    streams: Mapping[str, Asked],
    served: Iterable[str],
    site: Site,
    kind: GeneratorKind = GENERATORS[0],
) -> StreamsLoad:
    """Load on models that are loaded; it stays good when they are reloaded.

    Args:
        served: Names of all models that answer to it, the steps of ensembles too.

    Raises:
        SpecError: The inputs do not fit a model's.
    """
    arrivals = workload.arrivals
    traffic = recorded_traffic(arrivals, {name: own.model for name, own in streams.items()})
    asked = tuple(
        _stream(name, own, workload.protocol, site, traffic.of(number) if traffic else None)
        for number, (name, own) in enumerate(streams.items())
    )
    setup = Setup(site, asked, tuple(served), traffic or shape_of(arrivals))
    starts = arrivals.restarts if isinstance(arrivals, ClosedArrivals) else 1
    return StreamsLoad(kind.make(setup), starts, setup)


def _stream(
    name: str,
    asked: Asked,
    protocol: Protocol,
    site: Site,
    recorded: RecordedStream | None,
) -> Stream:
    control, model = site.control, asked.model
    config = control.running_config(model)
    streamed = config.model_transaction_policy.decoupled
    target = LoadTarget(model, site.endpoints, protocol, asked.batch_size, streamed)
    if isinstance(asked.inputs, RecordingInputs):
        assert recorded is not None  # the spec is refused
        shapes = tuple(shaped_contents(asked.inputs, recorded, inputs_of(config), site.directory))
    else:
        shapes = tuple(
            ShapedInputs(
                InputFiles(
                    inputs,
                    tensors,
                    site.directory,
                    cached=lambda: control.running_config(model).response_cache.enable,
                ),
                shape_name,
                share,
            )
            for inputs, tensors, shape_name, share in _shaped(asked.inputs, model, config)
        )
    form = RequestForm(
        model=model,
        datatypes={t.name: t.datatype for t in inputs_of(config)},
        shapes={t.name: t.shape for t in inputs_of(config)},
        batched=config.max_batch_size > 0,
        batch_size=asked.batch_size,
        priority=asked.priority,
        optional=tuple(t.name for t in config.input if t.optional),
        sequence_ids=ids_for(_answering(control, model)),
    )
    return Stream(name, target, form, shapes, asked.share, asked.rate_per_s)


def _answering(control: Control, model: str) -> Iterator[Any]:
    """The configs of a model, and of the steps of an ensemble."""
    config = control.running_config(model)
    yield config
    for step in config.ensemble_scheduling.step:
        yield from _answering(control, step.model_name)


def _shaped(
    inputs: RandomInputs | FileInputs, model: str, config: Any
) -> Iterator[tuple[RandomInputs | FileInputs, tuple[TensorShape, ...], str, float]]:
    """Inputs of each shape, with the tensors, the shape's name and its share.

    Different inputs that come back are shared out as the requests are.
    """
    if not isinstance(inputs, RandomInputs):
        yield inputs, inputs_of(config), "", 1.0
        return
    for shape in inputs.request_shapes:
        unique = None if inputs.unique is None else max(round(inputs.unique * shape.share), 1)
        own = inputs.model_copy(update={"unique": unique})
        yield own, resolve(model, config, shape.dims), shape.name, shape.share


def part_s(duration_s: float, count: int) -> float:
    """Each start's share of a window."""
    return duration_s if count == 1 else max(duration_s / count, LEAST_S)


def combine(starts: Sequence[Measurement], bounds: Sequence[LatencyBound] = ()) -> Measurement:
    """One measurement of several starts of the same load, with windows of the same length.

    Percentiles are over the requests of all starts. ``bounds``: what SLOs hold them to.
    """
    latencies = [m.latencies_us for m in starts if m.latencies_us is not None]
    assert len(latencies) == len(starts)  # no generator measures without them
    whole = replace(
        starts[0],
        **{name: sum(getattr(m, name) for m in starts) for name in _ADDED_UP},
        **{name: _known(fmean, [getattr(m, name) for m in starts]) for name in _AVERAGED},
        **latency_figures(np.sort(np.concatenate(latencies))),
        server=_server([m.server for m in starts]),
        models={
            name: own
            for name in starts[0].models
            if (own := _server([m.models.get(name) for m in starts]))
        },
        streams=_each([m.streams for m in starts], bounds),
        shapes={n: replace(m, warnings=()) for n, m in _each([m.shapes for m in starts]).items()},
        failures=_failures([m.failures for m in starts]),
        responses=responses_of_all(m.responses for m in starts),
        host=_host([m.host for m in starts]),
        backlog=starts[-1].backlog,
        restarts=tuple(Restart(m.throughput_infer_per_s, m.p99_latency_us) for m in starts),
        warnings=(),
    )
    said = [w for m in starts for w in m.warnings if w not in warnings_about(m, bounds)]
    told = (*dict.fromkeys(said), *_spread(whole), *warnings_about(whole, bounds))
    return replace(whole, warnings=told)


def _spread(whole: Measurement) -> tuple[str, ...]:
    rates = [start.throughput_infer_per_s for start in whole.restarts]
    low, high = min(rates), max(rates)
    if high <= low * (1.0 + SPREAD):
        return ()
    span = f"{digits(low, 4)} to {digits(high, 4)} infer/s over {len(rates)} starts"
    return (f"The closed loop settles in different modes: {span}.",)


def _each(
    starts: Sequence[Mapping[str, Measurement]], bounds: Sequence[LatencyBound] = ()
) -> dict[str, Measurement]:
    """The measurements of each stream, or each shape, that was there in every start."""
    found = {name: [start.get(name) for start in starts] for name in starts[0]}
    return {
        name: combine([m for m in own if m], [b for b in bounds if b.stream == name])
        for name, own in found.items()
        if None not in own
    }


def _failures(
    parts: Sequence[Mapping[FailureReason, Failures]],
) -> dict[FailureReason, Failures]:
    """Counts added up; of how late failures came the worst start's."""
    found = {r: [part[r] for part in parts if r in part] for r in FailureReason}
    return {
        reason: Failures(
            sum(own.count for own in starts),
            max(own.p50_told_us for own in starts),
            max(own.p99_told_us for own in starts),
        )
        for reason, starts in found.items()
        if starts
    }


def _server(parts: Sequence[ServerStatistics | None]) -> ServerStatistics | None:
    """Counts added up, times weighted by the requests they are per."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    counts = {
        field.name: sum(getattr(part, field.name) for part in found)
        for field in fields(ServerStatistics)
        if field.name.endswith("_count")
    }
    computed = [max(p.success_count - p.cache_hit_count, 0) for p in found]

    def compute_us(name: str) -> float:
        return _weighted([getattr(part, name) for part in found], computed)

    batches: dict[int, tuple[int, int]] = {}
    for size, executions, total_ns in (row for part in found for row in part.batch_stats):
        before = batches.get(size, (0, 0))
        batches[size] = (before[0] + executions, before[1] + total_ns)
    return ServerStatistics(
        **counts,
        queue_us=_weighted([p.queue_us for p in found], [p.success_count for p in found]),
        compute_input_us=compute_us("compute_input_us"),
        compute_infer_us=compute_us("compute_infer_us"),
        compute_output_us=compute_us("compute_output_us"),
        batch_stats=tuple((size, *batches[size]) for size in sorted(batches)),
    )


#: How readings of several starts are combined: the worst, unless listed here.
_READINGS: dict[str, Callable[[list[Any]], Any]] = {
    "cpu_percent": fmean,
    "governor": lambda values: values[-1],
    "gpu_utilization": fmean,
    "gpu_power_w": fmean,
    "gpu_clock_mhz": min,
    "cache_utilization": lambda values: values[-1],
    "cache_entries": lambda values: values[-1],
    "cache_evictions": sum,
}


def _host(parts: Sequence[HostUse]) -> HostUse:
    return HostUse(
        **{
            name: _known(_READINGS.get(name, max), [getattr(part, name) for part in parts])
            for name in vars(parts[0])
        }
    )


def _known(combine: Callable[[list[Any]], Any], values: Sequence[Any]) -> Any:
    """Combined from those that are known; None when none is."""
    known = [value for value in values if value is not None]
    return combine(known) if known else None


def _weighted(values: Sequence[float], weights: Sequence[int]) -> float:
    return float(np.average(values, weights=weights)) if sum(weights) else 0.0
