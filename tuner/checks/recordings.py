"""Checks that a recording fits the spec and the models, before anything is started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tuner.errors import SpecError
from tuner.load.traffic.encoding import TensorShape
from tuner.load.traffic.recordings.contents import RecordedContents
from tuner.load.traffic.recordings.replay import RecordedTraffic, recorded_traffic
from tuner.load.traffic.wire import ContentSize
from tuner.spec.model import Spec
from tuner.spec.units import Percent
from tuner.spec.workload import RecordingInputs

#: A stream's share of a recording and of the spec may differ by so much.
_POINTS = 0.02


@dataclass(frozen=True)
class RecordedFigures:
    """A file's number of entries, the bytes of one, and the number of shapes of each input.

    Attributes:
        lengths: Number of entries of each sequence; empty if the file has no sequences.
    """

    count: int
    least_bytes: int
    most_bytes: int
    shapes: Mapping[str, int]
    lengths: tuple[int, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[Mapping[str, ContentSize]]) -> RecordedFigures:
        """The figures of a file's entries, of which there is at least one."""
        sizes: Counter[int] = Counter()
        shapes = set()
        for entry in entries:
            sizes[sum(size.byte_count for size in entry.values())] += 1
            shapes |= {(name, size.shape) for name, size in entry.items()}
        counts = Counter(name for name, _ in shapes)
        return cls(sizes.total(), min(sizes), max(sizes), counts)


def traffic_of(spec: Spec) -> RecordedTraffic | None:
    """The recording that the spec names, if it does, with the spec's streams in it.

    Raises:
        SpecError: It cannot be read, or has other streams or shares than the spec.
    """
    models = {name: stream.model for name, stream in spec.streams.items()}
    traffic = recorded_traffic(spec.workload.arrivals, models)
    if traffic is None:
        return None
    parts = np.bincount(traffic.order, minlength=len(models)) / traffic.order.size
    shares = dict(zip(models, parts.tolist(), strict=True))
    for name, share in spec.shares.items():
        if abs(shares[name] - share) > _POINTS:
            said = ", ".join(f"{n} {Percent(round(part, 3))}" for n, part in shares.items())
            raise SpecError(
                f"{traffic.recording.path}: {Percent(round(shares[name], 3))} of its requests are "
                f"of the stream {name}, and the spec says {Percent(share)}",
                f"write the shares of the recording: {said}",
            )
    return traffic


def figures_of(
    inputs: RecordingInputs,
    traffic: RecordedTraffic,
    stream: int,
    tensors: tuple[TensorShape, ...],
    *,
    all_known: bool,
    in_json: bool = False,
) -> RecordedFigures:
    """Checks what each request of a stream carries.

    Raises:
        SpecError: Some do not fit the model, with the place of each.
    """
    of_stream = traffic.of(stream)
    contents = RecordedContents(inputs, of_stream, tensors, all_known=all_known)
    return RecordedFigures.of(contents.checked(in_json=in_json))
