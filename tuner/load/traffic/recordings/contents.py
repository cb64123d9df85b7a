"""Inputs of the requests of one recorded stream, read from its lines when they are sent.

A line has the inputs themselves, in perf_analyzer's form, or the shapes of random inputs, or the
number of an entry in the input file of the spec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tuner.errors import LoadFailedError, SpecError
from tuner.load import seeds
from tuner.load.traffic.encoding import (
    MAX_BYTES,
    TensorShape,
    content_bytes,
    drawable,
    drawn_bytes,
    random_contents,
    refuse_above_most,
)
from tuner.load.traffic.inputs import RunInputs
from tuner.load.traffic.recordings.lines import HINT, LineError, RecordedStream
from tuner.load.traffic.repeats import Order
from tuner.load.traffic.request_file import read_entry, read_requests
from tuner.load.traffic.wire import Content, ContentSize, Tensors, json_bytes
from tuner.plain import plain
from tuner.spec.mistakes import Finding, FindingsError, listed
from tuner.spec.workload import RecordingInputs

#: Inputs of one request by name; the shape only, if its values are to be drawn.
_Carried = Mapping[str, Content | TensorShape]
#: Most lines that do not fit before reading stops.
_MOST_WRONG = 10_000
_PLACE = 5  # the seed's stream for where a row of requests begins; see `traffic.recordings.replay`


class RecordedContents:
    """Reads the inputs of some requests of a stream.

    Args:
        recorded: The stream's requests in the recording.
        tensors: The model's inputs.
        all_known: False before a server was asked, which may add inputs to the config.
    """

    def __init__(
        self,
        spec: RecordingInputs,
        recorded: RecordedStream,
        tensors: Sequence[TensorShape],
        *,
        all_known: bool = True,
    ) -> None:
        self._spec = spec
        self._recording, self.numbers = recorded.recording, recorded.numbers
        self._tensors = tuple(tensors)
        self._all_known = all_known
        self._calls = 0

    def of_run(self, seed: int, count: int, lines: Order | None = None) -> RunInputs:
        """The inputs of these requests, in their order; without ``lines``, of ``count`` in a row.

        Raises:
            SpecError: The recording has changed.
        """
        if lines is None:
            first = int(np.random.default_rng((seed, _PLACE)).integers(self.numbers.size))
            lines = self.numbers[(first + np.arange(count)) % self.numbers.size]
        self._calls += 1
        return RunInputs(self._read(lines, (seeds.INPUTS, seed, self._calls)), None)

    def first(self, count: int) -> Sequence[Tensors]:
        """The inputs of the first ``count`` requests, the same in each call."""
        return self._read(self.numbers[:count], (seeds.INPUTS,))

    def remembered(self, seed: int) -> Sequence[Tensors]:
        """Empty: no cache is filled from a recording, see `tuner.spec.recording_checks`."""
        del seed
        return ()

    def checked(self, *, in_json: bool = False) -> Iterator[Mapping[str, ContentSize]]:
        """Sizes of each request's inputs as they are sent, one request after the other.

        Raises:
            SpecError: At the end, if some do not fit the model; with the place of each.
        """
        wrong = list[Finding]()
        for number, text, row in self._recording.read(self.numbers.tolist()):
            try:
                carried = self._carried(text, row)
                sizes = self._sizes(text, carried)
                yield self._sizes_in_json(text, carried) if in_json else sizes
            except LineError as error:
                if len(wrong) < _MOST_WRONG:
                    place = self._recording.place(number, error.column)
                    wrong.append(Finding((), plain(f"{place}: {error.message}"), hint=HINT))
        if wrong:
            raise FindingsError(wrong)

    def _read(self, lines: Order, seed: tuple[int, ...]) -> list[Tensors]:
        """The inputs of these requests; a line with several uses is read once."""
        rng, carried, total = np.random.default_rng(seed), dict[int, _Carried](), 0
        for number, text, row in self._recording.read(np.unique(lines).tolist()):
            carried[number] = self._carried(text, row)
            total += sum(size.byte_count for size in self._sizes(text, carried[number]).values())
            refuse_above_most(total)
        drawn = {number: self._drawn(one, rng) for number, one in carried.items()}
        return [drawn[number] for number in lines.tolist()]

    def _carried(self, text: str, row: Mapping[str, Any]) -> _Carried:
        """The inputs of one request; raises `LineError`."""
        if "inputs" in row:
            contents, wrong = read_entry(row["inputs"], self._tensors, all_known=self._all_known)
            if wrong:
                raise LineError.at(text, "inputs", f"inputs: {listed(wrong, '; ')}")
            return contents
        if "entry" in row:
            return self._entry(text, row["entry"])
        if "shapes" in row:
            return self._shapes(text, row["shapes"])
        message = "it holds no inputs: say what requests carry, such as inputs: {kind: random}"
        raise LineError(f"{message}, in the spec")

    def _entry(self, text: str, number: Any) -> Mapping[str, Content]:
        if self._spec.file is None:
            message = "entry of which file? Write inputs: {kind: recording, file: FILE} in the spec"
            raise LineError.at(text, "entry", message)
        if type(number) is not int or not 0 <= number < len(self._entries):
            message = f"{self._spec.file} has no entry {number!r}: they count from 0 to "
            raise LineError.at(text, "entry", f"{message}{len(self._entries) - 1}")
        return self._entries[number]

    @cached_property
    def _entries(self) -> Sequence[Mapping[str, Content]]:
        assert self._spec.file is not None
        carried = read_requests(self._spec.file, self._tensors, all_known=self._all_known)
        if carried.lengths:
            text = f"{self._spec.file}: it holds sequences, and a recording names single requests"
            raise SpecError(text, "give a file with one list of requests")
        return carried.entries

    def _sizes(self, text: str, carried: _Carried) -> Mapping[str, ContentSize]:
        """Sizes of one request's inputs; raises `LineError` if they exceed the limit."""
        letters = self._spec.string_length
        sizes = {
            name: one.size
            if isinstance(one, Content)
            else ContentSize(one.shape, content_bytes(one, letters))
            for name, one in carried.items()
        }
        total = sum(size.byte_count for size in sizes.values())
        if total > MAX_BYTES:
            message = f"its inputs take more than {MAX_BYTES >> 30} GiB, the most for a request"
            raise LineError.at(text, "shapes", message)
        return sizes

    def _sizes_in_json(self, text: str, carried: _Carried) -> Mapping[str, ContentSize]:
        """Sizes of the same as JSON; raises `LineError` where it has no such value."""
        datatypes, sizes = {t.name: t.datatype for t in self._tensors}, dict[str, ContentSize]()
        for name, one in carried.items():
            try:
                if isinstance(one, TensorShape):
                    size = drawn_bytes(one, self._spec, in_json=True)
                else:
                    datatype = datatypes.get(name)
                    size = json_bytes(name, datatype, one) if datatype else len(one.raw)
            except LoadFailedError as error:
                raise LineError.at(text, "inputs", error.message) from error
            sizes[name] = ContentSize(one.shape, size)
        return sizes

    def _drawn(self, carried: _Carried, rng: np.random.Generator) -> Mapping[str, Content]:
        """The same inputs, with random values in place of shapes."""
        spec, contents = self._spec, dict[str, Content]()
        for name, one in carried.items():
            if isinstance(one, Content):
                contents[name] = one
                continue
            (raw,) = random_contents(one, 1, rng, spec.int_range, spec.string_length)
            contents[name] = Content(one.shape, raw)
        return contents

    def _shapes(self, text: str, shapes: Any) -> Mapping[str, TensorShape]:
        """The shapes in a line, and those of inputs with fixed dimensions."""
        given = shapes if isinstance(shapes, dict) else {}
        known = {tensor.name: tensor for tensor in self._tensors}
        if given is not shapes or (self._all_known and not given.keys() <= known.keys()):
            expected = listed(known) or "of the model's inputs"
            raise LineError.at(text, "shapes", f"shapes are by input, and these are {expected}")
        by_name = dict[str, TensorShape]()
        for tensor in self._tensors:
            if tensor.optional and tensor.name not in given:
                continue
            dims = given.get(tensor.name, [*tensor.shape])
            if not _fits(dims, tensor.shape):
                message = f"{tensor.name} cannot be {dims}, the model has {[*tensor.shape]}"
                raise LineError.at(text, "shapes", message)
            tensor_shape = TensorShape(tensor.name, tensor.datatype, tuple(dims))
            drawable(tensor_shape)
            by_name[tensor.name] = tensor_shape
        return by_name


def _fits(dims: Any, wanted: Sequence[int]) -> bool:
    return (
        isinstance(dims, list)
        and len(dims) == len(wanted)
        and all(
            type(d) is int and d > 0 and w in (-1, d) for d, w in zip(dims, wanted, strict=True)
        )
    )
