"""Which of the served models takes the time of a request, where an SLO is nearest its bound."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tuner.measurement.measurement import LoadPoint, ServerStatistics
from tuner.record.manifest import Manifest
from tuner.score.point import Point


@dataclass(frozen=True)
class ModelTime:
    """What one model itself takes of the average request, in microseconds, without its waits."""

    model: str
    queue_us: float
    compute_us: float

    @property
    def total_us(self) -> float:
        return self.queue_us + self.compute_us


@dataclass(frozen=True)
class Bottleneck:
    """The model in which a request spends most of its time.

    Attributes:
        stream: Whose requests, of several: of those whose SLO is nearest its bound.
        model: Its name.
        share: Of the time a request spends in models, the share in this one, 0..1.
        queue_share: Of that time, the share spent in the model's queue, 0..1.
        models: Every model that has a part in the answer, in the order in which they are loaded.
        load: The load at which it was seen.
    """

    stream: str
    model: str
    share: float
    queue_share: float
    models: tuple[ModelTime, ...]
    load: LoadPoint


def bottleneck_of(point: Point, manifest: Manifest) -> Bottleneck | None:
    """What one load showed; None if there are no models to tell apart, or no statistics."""
    if len(manifest.models) == 1:
        return None
    stream = point.limiting_stream
    times = times_of(point, manifest, stream or next(iter(manifest.streams)))
    total_us = sum(time.total_us for time in times)
    if not total_us:
        return None
    most = max(times, key=lambda time: time.total_us)
    load = point.measurement.load
    queue_share = most.queue_us / most.total_us
    return Bottleneck(stream, most.model, most.total_us / total_us, queue_share, times, load)


def times_of(point: Point, manifest: Manifest, stream: str) -> tuple[ModelTime, ...]:
    """The time of a stream's average request by model, of those that have a part in its answer.

    Triton counts what a model waits for others as its own computing: it is taken out.
    """
    top, counted = manifest.streams[stream], point.measurement.models
    members = [label for label in _members(manifest, top) if label in counted]
    others = {
        label
        for name, model in manifest.streams.items()
        if name != stream
        for label in _members(manifest, model)
    }
    queues, totals = {}, {}
    for label in members:
        server = counted[label]
        times = _times(counted, label, top, others)
        queues[label] = server.queue_us * times
        totals[label] = (server.queue_us + server.compute_us) * times
    result = []
    for label in members:
        parts = manifest.models[label].parts
        model_us = max(0.0, totals[label] - sum(totals.get(part, 0.0) for part in parts))
        queue_us = min(queues[label], model_us)
        result.append(ModelTime(label, queue_us, model_us - queue_us))
    return tuple(result)


def _members(manifest: Manifest, top: str) -> list[str]:
    """The model and all it is made of or calls, in the order in which they are loaded."""
    members, waiting = {top}, [top]
    for label in waiting:  # grows
        new = set(manifest.models[label].parts) - members
        members |= new
        waiting += new
    return [label for label in manifest.models if label in members]


def _times(
    counted: Mapping[str, ServerStatistics], label: str, top: str, others: Collection[str]
) -> float:
    """How often a request of the model ``top`` asks a model; once where others ask it too."""
    requests = counted[top].success_count if top in counted else 0
    return 1.0 if label in others or not requests else counted[label].success_count / requests
