"""What a run's trials have in common, from its spec and from what they measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuner.load.streams_load import shape_of
from tuner.load.traffic.inputs import DEFAULT_UNIQUE
from tuner.measurement.measurement import Arrivals
from tuner.measurement.window import window_for
from tuner.score.trial import Trial
from tuner.space.space import Space
from tuner.spec.model import Spec
from tuner.spec.workload import RandomInputs, StreamSpec, UniformRepeat, ZipfRepeat
from tuner.twin.observation import Asked, Repeats, Setting


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
