"""Inputs of requests that come from a file of sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.load.setup import Stream
from tuner.load.traffic.encoding import TensorShape
from tuner.load.traffic.inputs import RunInputs
from tuner.load.traffic.repeats import Order
from tuner.load.traffic.request_file import RequestFile, read_requests
from tuner.load.traffic.wire import Tensors
from tuner.spec.workload import FileInputs


class SequenceContents:
    """The requests in a file of sequences, in their places; an `InputSource`."""

    def __init__(self, file: RequestFile) -> None:
        self._entries = file.entries
        self.lengths = file.lengths

    def of_run(self, seed: int, count: int, lines: Order | None = None) -> RunInputs:
        """Inputs of these requests; without ``lines``, each is a sequence of one request."""
        del seed
        if lines is None:
            return RunInputs(self.first(count), None)
        return RunInputs([self._entries[entry] for entry in lines.tolist()], None)

    def first(self, count: int) -> Sequence[Tensors]:
        """The first requests of sequences."""
        begins = np.cumsum([0, *self.lengths[:-1]])[:count]
        return [self._entries[entry] for entry in begins.tolist()]

    def remembered(self, seed: int) -> Sequence[Tensors]:
        """Empty: Triton does not cache answers of sequences."""
        del seed
        return ()


def sequence_contents(
    inputs: FileInputs, tensors: Sequence[TensorShape]
) -> SequenceContents | None:
    """The contents of a file of sequences; None for a file of independent requests.

    Raises:
        SpecError: The file cannot be read, or does not fit the model's inputs.
    """
    file = read_requests(inputs.file, tensors)
    return SequenceContents(file) if file.lengths else None


def played_by(stream: Stream) -> tuple[int, ...]:
    """The length of each sequence in a stream's file; empty if sequences are drawn."""
    (shape, *_) = stream.shapes
    return shape.inputs.lengths if isinstance(shape.inputs, SequenceContents) else ()
