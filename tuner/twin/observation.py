"""What a run's trials have in common, and their load points, which the twin is fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tuner.load.seeds import of_stream
from tuner.load.streams_load import shape_of
from tuner.load.traffic.arrivals import SLACK_S, Shape, arrivals_of
from tuner.load.traffic.inputs import DEFAULT_UNIQUE
from tuner.measurement.measurement import (
    Arrivals,
    LatencySource,
    LoadPoint,
    Measurement,
    ServerStatistics,
)
from tuner.measurement.window import window_for
from tuner.modelconfig.served import Served
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate, service_key
from tuner.space.space import Space
from tuner.spec.model import Spec
from tuner.spec.workload import RandomInputs, StreamSpec, UniformRepeat, ZipfRepeat
from tuner.twin.model import Plan, Unmodelled, network_of, plan_of
from tuner.twin.system import Network, Traffic

#: Inputs asked for beforehand to fill a cache, for each that can be asked for.
_WARM_ROUNDS = 10


@dataclass(frozen=True)
class Repeats:
    """Which inputs requests carry: ``unique`` ones, the n-th in proportion to n**-exponent."""

    unique: int
    exponent: float = 0.0


@dataclass(frozen=True)
class Asked:
    """What a stream asks.

    Attributes:
        model: Its label.
        share: Of the level.
        rate_per_s: Of a background, which has no share.
        repeats: None when no input comes twice.
        priority: Of its requests; 0 leaves it to the model.
    """

    name: str = ""
    model: str = ""
    request_size: int = 1
    share: float = 1.0
    rate_per_s: float | None = None
    repeats: Repeats | None = None
    priority: int = 0

    @property
    def background(self) -> bool:
        return self.rate_per_s is not None

    def load(self, load: LoadPoint) -> LoadPoint:
        """Its part of a load on all streams."""
        level = self.share * load.level if self.rate_per_s is None else self.rate_per_s
        return replace(load, level=level)


@dataclass(frozen=True)
class Setting:
    """What is the same for all trials of a run.

    Attributes:
        served: The models' configs.
        asked: The streams.
        warmup_s: Load before each window.
        tail_s: And after it.
        devices: GPUs the server sees.
        shape: Of arrivals that have one beside their rate.
        response_bytes: Size of a cache entry, where known.
        cores: That server and client share; None where they are not on one machine.
    """

    served: Served
    asked: tuple[Asked, ...]
    warmup_s: float = 0.5
    tail_s: float = 0.3
    devices: int = 1
    shape: Shape | None = None
    response_bytes: int | None = None
    cores: int | None = None

    @cached_property
    def plan(self) -> Plan | Unmodelled:
        """Who answers the requests."""
        if any(stream.priority for stream in self.asked):
            return Unmodelled("requests with a priority are not simulated")
        sizes: dict[str, set[int]] = {}
        for stream in self.asked:
            sizes.setdefault(stream.model, set()).add(stream.request_size)
        if any(len(found) > 1 for found in sizes.values()):
            return Unmodelled("requests of different sizes to one model are not simulated")
        return plan_of(self.served, [stream.model for stream in self.asked])

    @property
    def request_size(self) -> float:
        """Inferences for each request of the mix."""
        return sum(s.share * s.request_size for s in self.asked if not s.background)

    def network(self, candidate: Candidate) -> Network | Unmodelled:
        if isinstance(self.plan, Unmodelled):
            return self.plan
        return network_of(
            candidate,
            self.served,
            self.plan,
            devices=self.devices,
            response_bytes=self.response_bytes,
        )

    def traffics(self, load: LoadPoint, duration_s: float, seed: int) -> tuple[Traffic, ...]:
        """The load of each stream as the generator draws it: equal seeds, equal arrivals."""
        return tuple(self._traffic(asked, load, duration_s, seed) for asked in self.asked)

    def _traffic(self, asked: Asked, load: LoadPoint, duration_s: float, seed: int) -> Traffic:
        start_s, end_s = self.warmup_s, self.warmup_s + duration_s
        load, seed = asked.load(load), of_stream(seed, asked.name, self.asked)
        closed = not load.arrivals.open_loop
        due_s, count = None, 0
        if not closed:
            spans_s = (self.warmup_s, duration_s, self.tail_s + SLACK_S)
            due_s = arrivals_of(load, spans_s, seed, self.shape)
            due_s = due_s[due_s < end_s + self.tail_s]
            count = due_s.size
        traffic = Traffic(
            window_s=(start_s, end_s),
            end_s=end_s + self.tail_s,
            due_s=due_s,
            concurrency=round(load.level) if closed else 0,
            request_size=asked.request_size,
            stream=asked.name,
            background=asked.background,
        )
        return traffic if asked.repeats is None else _with_keys(traffic, asked.repeats, count, seed)


def _with_keys(traffic: Traffic, repeats: Repeats, count: int, seed: int) -> Traffic:
    count = count or round(traffic.end_s * 20_000)
    warm = min(repeats.unique * _WARM_ROUNDS, 50_000)
    drawn = draw_keys(repeats, warm + count, seed)
    return replace(traffic, keys=drawn[warm:], warm_keys=drawn[:warm])


def draw_keys(repeats: Repeats, count: int, seed: int) -> npt.NDArray[np.int64]:
    """Independent draws of 0 to ``unique - 1``."""
    weights = np.arange(1, repeats.unique + 1, dtype=float) ** -repeats.exponent
    cumulative = np.cumsum(weights)
    draws = np.random.default_rng((seed, repeats.unique)).random(count) * cumulative[-1]
    found: npt.NDArray[np.int64] = np.searchsorted(cumulative, draws, side="right")
    return found


@dataclass(frozen=True)
class Observation:
    """One measured load point: what was simulated for it, and what it is to show.

    Attributes:
        trial: Which trial it belongs to; trials are resampled as a whole.
        streams: What each stream showed; None where none of its requests was due.
        models: What each model of the network counted; None if unknown.
        busy_cores: Of the machine, by server and client together; None if unknown.
        saturated: Of each stream, open loop: the server did not keep up, its latencies depend on
            how long the load went on, and only its throughput says something.
    """

    trial: int
    network: Network
    traffics: tuple[Traffic, ...]
    seed: int
    measurement: Measurement
    streams: tuple[Measurement | None, ...]
    models: tuple[ServerStatistics | None, ...]
    busy_cores: float | None
    saturated: tuple[bool, ...]

    @property
    def tells_throughput(self) -> bool:
        """Below saturation an open loop's throughput is the load itself."""
        return any(self.saturated) or not self.measurement.load.arrivals.open_loop


def compute_us(models: ServerStatistics | None) -> float | None:
    """Mean time of the batch a request was in, responses included."""
    if models is None or not models.execution_count:
        return None
    # Hits count as requests that took no time to compute.
    return models.compute_us / max(1.0 - (models.cache_hit_rate or 0.0), 1e-3)


def observations_of(trials: Sequence[Trial], setting: Setting) -> list[Observation]:
    """Every load point of the measured trials that the twin can simulate.

    Trials that differ in a field the twin knows nothing about cannot be fitted together: only
    those that agree with most of them are used.
    """
    usable = [t for t in trials if t.state is not TrialState.FAILED and t.points]
    kinds = [service_key(t.candidate) for t in usable]
    common = max(kinds, key=kinds.count, default=())
    found = []
    for trial, kind in zip(usable, kinds, strict=True):
        network = setting.network(trial.candidate)
        if kind != common or isinstance(network, Unmodelled):
            continue
        found += [
            observation(trial.number, network, point.measurement, setting)
            for point in trial.points
            if point.measurement.source is LatencySource.REQUESTS
        ]
    return found


def observation(
    trial: int, network: Network, measurement: Measurement, setting: Setting
) -> Observation:
    plan, traffics = (
        setting.plan,
        setting.traffics(measurement.load, measurement.duration_s, measurement.seed),
    )
    labels = () if isinstance(plan, Unmodelled) else plan.labels
    streams = tuple(
        measurement.of(s.name) if measurement.streams else measurement for s in setting.asked
    )
    return Observation(
        trial=trial,
        network=network,
        traffics=traffics,
        seed=measurement.seed,
        measurement=measurement,
        streams=streams,
        models=tuple(measurement.models.get(label) for label in labels),
        busy_cores=_busy_cores(measurement, setting.cores),
        saturated=tuple(
            m is not None and _saturated(m, asked.load(measurement.load))
            for m, asked in zip(streams, setting.asked, strict=True)
        ),
    )


def _saturated(measurement: Measurement, load: LoadPoint) -> bool:
    offered = load.level * measurement.batch_size if load.arrivals.open_loop else 0.0
    return (
        measurement.throughput_infer_per_s < 0.97 * offered
        or measurement.unanswered_count > 0.01 * max(measurement.completed_count, 1)
    )


def _busy_cores(measurement: Measurement, cores: int | None) -> float | None:
    used, others = measurement.host.cpu_percent, measurement.host.other_cpu_percent
    if cores is None or used is None:
        return None
    return cores * (used - (others or 0.0)) / 100.0


def setting_of(space: Space, spec: Spec) -> Setting:
    """The setting before anything was measured.

    Raises:
        SpecError: The trace of arrivals cannot be read.
    """
    workload = spec.workload
    latencies_us = [s.bound for s in spec.slos if s.metric.is_latency]
    window = window_for(
        [],
        None,
        window_s=float(workload.window),
        max_window_s=float(workload.max_window),
        warmup_s=float(workload.warmup),
        latency_bound_s=max(latencies_us, default=0.0) / 1e6,
        open_loop=Arrivals(workload.arrivals.kind).open_loop,
    )
    return Setting(
        space.served,
        tuple(_asked(name, stream, spec) for name, stream in spec.streams.items()),
        warmup_s=window.warmup_s,
        tail_s=window.tail_s,
        shape=shape_of(workload.arrivals),
    )


def _asked(name: str, stream: StreamSpec, spec: Spec) -> Asked:
    return Asked(
        name,
        stream.model,
        stream.batch_size,
        spec.shares.get(name, 0.0),
        None if stream.rate is None else float(stream.rate),
        _repeats(stream),
        stream.priority or 0,
    )


def with_measured(setting: Setting, trials: Sequence[Trial]) -> Setting:
    """The same with what only trials show: the size of a cache entry, cores and GPUs."""
    hosts = [p.measurement.host for trial in trials for p in trial.points]
    cores = next((host.cores for host in hosts if host.cores), setting.cores)
    found = (_response_bytes(trial) for trial in trials)
    return replace(
        setting,
        response_bytes=next((size for size in found if size), setting.response_bytes),
        cores=cores,
        devices=max((host.gpus for host in hosts if host.gpus), default=setting.devices),
    )


def _response_bytes(trial: Trial) -> int | None:
    size = trial.candidate.cache_bytes
    for point in trial.points if size else ():
        host = point.measurement.host
        if size and host.cache_entries and host.cache_utilization:
            return max(round(size * host.cache_utilization / host.cache_entries), 1)
    return None


def _repeats(stream: StreamSpec) -> Repeats | None:
    inputs = stream.inputs
    if not isinstance(inputs, RandomInputs):
        return None
    unique = inputs.unique or DEFAULT_UNIQUE
    if isinstance(inputs.repeat, ZipfRepeat):
        return Repeats(unique, inputs.repeat.exponent)
    if isinstance(inputs.repeat, UniformRepeat):
        return Repeats(unique)
    return None
