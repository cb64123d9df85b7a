"""Groups of recorded requests by shape: each shape separately if they are few, else by size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tuner.load.traffic.recordings.lines import LineShapes, RecordedStream
from tuner.load.traffic.repeats import Order

#: More shapes than this are grouped by size, into this many groups of equal numbers of requests.
MOST_SHAPES, GROUPS = 8, 4


@dataclass(frozen=True)
class RecordedGroup:
    """A group of a stream's requests.

    Attributes:
        name: Name of their shape, or range of their sizes; "" for a single group.
        numbers: Numbers of the requests in the recording.
    """

    name: str
    numbers: Order


def groups_of(recorded: RecordedStream) -> list[RecordedGroup]:
    """The requests of a stream by shape, the smallest first."""
    recording, numbers = recorded.recording, recorded.numbers
    forms, which = np.unique(recording.forms[numbers], return_inverse=True)
    shapes = [recording.shapes[form] for form in forms.tolist()]
    if len(shapes) == 1 or () in shapes:
        return [RecordedGroup("", numbers)]
    if len(shapes) <= MOST_SHAPES:
        alike = {tuple(name for name, _ in shape) for shape in shapes}
        names = [shape_name(shape, alone=len(alike) == 1 and len(shape) == 1) for shape in shapes]
        groups = [RecordedGroup(name, numbers[which == k]) for k, name in enumerate(names)]
        return sorted(
            groups, key=lambda group: _size(recording.shapes[recording.forms[group.numbers[0]]])
        )
    sizes = np.array([_size(shape) for shape in shapes])[which]
    return _by_size(sizes, numbers)


def shape_name(shape: LineShapes, *, alone: bool) -> str:
    """The name as with random inputs: the dimensions, with input names where there are several."""
    if alone or len({dims for _, dims in shape}) == 1:
        return str([*shape[0][1]])
    return ", ".join(f"{name} {[*dims]}" for name, dims in shape)


def _size(shape: LineShapes) -> int:
    return sum(prod(dims) for _, dims in shape)


def _by_size(sizes: Order, numbers: Order) -> list[RecordedGroup]:
    edges: Sequence[int] = np.unique(
        np.quantile(sizes, np.arange(1, GROUPS + 1) / GROUPS, method="higher")
    ).tolist()
    groups, below = [], 0
    for edge in edges:
        inside = (sizes > below) & (sizes <= edge)
        name = f"{int(sizes[inside].min())} to {edge} values"
        groups.append(RecordedGroup(name, numbers[inside]))
        below = edge
    return groups if len(groups) > 1 else [RecordedGroup("", numbers)]
