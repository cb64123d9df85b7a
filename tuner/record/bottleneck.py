"""The served model that takes most of a request's time, in the stream nearest to its SLO."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tuner.measurement.measurement import LoadPoint, ServerStatistics
from tuner.record.manifest import Manifest
from tuner.score.point import Point


@dataclass(frozen=True)
class ModelTime:
    """Time of an average request in one model, without waits for other models, in microseconds."""

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
        stream: The stream whose SLO is nearest to its bound; "" with one stream.
        model: Name of the model.
        share: Time in this model as a share of a request's time in all models, 0..1.
        queue_share: Time in this model's queue as a share of a request's time in all models, 0..1.
        models: Every model that takes part in the answer, in the order in which they load.
        load: The load at which this was measured.
    """

    stream: str
    model: str
    share: float
    queue_share: float
    models: tuple[ModelTime, ...]
    load: LoadPoint


def bottleneck_of(point: Point, manifest: Manifest) -> Bottleneck | None:
    """The bottleneck at one load; None with a single model, or without statistics."""
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
    """Time of a stream's average request in each model that takes part in its answer.

    Triton counts a model's waits for other models as compute; they are subtracted here.
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
    """The model, its steps, and the models that its code calls, in the order in which they load."""
    members, waiting = {top}, [top]
    for label in waiting:  # grows in the loop
        new = set(manifest.models[label].parts) - members
        members |= new
        waiting += new
    return [label for label in manifest.models if label in members]


def _times(
    counted: Mapping[str, ServerStatistics], label: str, top: str, others: Collection[str]
) -> float:
    """Calls of a model per request of the model ``top``; 1 if other models call it too."""
    requests = counted[top].success_count if top in counted else 0
    return 1.0 if label in others or not requests else counted[label].success_count / requests
