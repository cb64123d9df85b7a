"""Inputs of a recorded stream's requests, separately for each shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.load.setup import ShapedInputs
from tuner.load.traffic.encoding import TensorShape
from tuner.load.traffic.recordings.contents import RecordedContents
from tuner.load.traffic.recordings.lines import RecordedStream
from tuner.load.traffic.recordings.shapes import groups_of
from tuner.spec.workload import RecordingInputs


def shaped_contents(
    inputs: RecordingInputs,
    recorded: RecordedStream,
    tensors: Sequence[TensorShape],
) -> Iterator[ShapedInputs]:
    """Contents of each shape, with its share of the stream's requests."""
    for group in groups_of(recorded):
        of_group = RecordedStream(recorded.recording, group.numbers)
        contents = RecordedContents(inputs, of_group, tensors)
        yield ShapedInputs(contents, group.name, group.numbers.size / recorded.numbers.size)
