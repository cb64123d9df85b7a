"""What requests carry: input files for perf_analyzer's ``--input-data``.

perf_analyzer can only go round a list of inputs, so a repeat distribution is sampled
beforehand into a long flat list. Its T threads start at entries 0 to T-1 and go on in steps of
T: the length of a sampled list shares no divisor with T, or each thread would see its own
share of the list again and again. Contents are written as base64 of Triton's binary form: exact
for every datatype, and a quarter of the size of a decimal float.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.errors import SpecError
from tuner.load.command import MAX_THREADS
from tuner.load.tensors import TensorShape, content_bytes, random_contents
from tuner.spec.model import FileInputs, Inputs, NoRepeat, RandomInputs, ZipfRepeat

#: Larger input files are not written: perf_analyzer reads all of one before it starts, which
#: takes it some 20 us a step.
MAX_FILE_BYTES = 64 << 20
MAX_STEPS = 1 << 15
#: The inputs themselves are the same in every measurement; a seed only changes their order.
_POOL_SEED = 20_240_713
_ORDER = 1  # the seed's stream for orders; arrivals draw from the seed itself
_DRAWS = 20  # rounds of replacing inputs that were drawn twice


@dataclass(frozen=True)
class InputFile:
    """A file for ``--input-data``.

    Attributes:
        sampled_steps: Length of a sampled list, after which perf_analyzer repeats it and the
            repeat distribution no longer holds; None where inputs are used in turn anyway.
        warnings: What does not match the spec, one sentence each.
    """

    path: Path
    sampled_steps: int | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Pool:
    """The different inputs as JSON objects, the most popular first."""

    entries: tuple[bytes, ...]
    warnings: tuple[str, ...] = ()

    @property
    def entry_bytes(self) -> int:
        """Size of the largest."""
        return max(map(len, self.entries)) + 1


class InputFiles:
    """Writes each input file once, into a directory that somebody else owns.

    Args:
        spec: From the workload.
        tensors: The model's inputs; not used for inputs from a file.
        directory: Where files go.
    """

    def __init__(self, spec: Inputs, tensors: Sequence[TensorShape], directory: Path) -> None:
        self._spec = spec
        self._tensors = tuple(tensors)
        self._directory = directory

    def file(self, seed: int, steps: int) -> InputFile:
        """Inputs for a run that will need about ``steps`` of them, in the seed's order.

        Raises:
            SpecError: The user's file cannot be sampled from.
        """
        repeat = self._spec.repeat
        if isinstance(repeat, NoRepeat):
            if isinstance(self._spec, FileInputs):
                return InputFile(self._spec.file, None)
            order = np.random.default_rng((seed, _ORDER)).permutation(len(self._pool.entries))
            path = self._written(f"{seed}", order)
            return InputFile(path, None, self._pool.warnings)
        at_most = min(MAX_FILE_BYTES // self._pool.entry_bytes, MAX_STEPS)
        length = sampled_length(steps, at_most)
        exponent = repeat.exponent if isinstance(repeat, ZipfRepeat) else 0.0
        order = sample(len(self._pool.entries), exponent, length, seed)
        path = self._written(f"{seed}-{length}", order)
        return InputFile(path, length, self._pool.warnings)

    def first(self, count: int) -> Path:
        """A file of the ``count`` most popular different inputs, or of all there are.

        Raises:
            SpecError: The user's file holds sequences, or cannot be read.
        """
        return self._written(f"first-{count}", np.arange(min(count, len(self._pool.entries))))

    def _written(self, name: str, order: npt.NDArray[np.int64]) -> Path:
        kind = hashlib.sha256(repr((self._spec, self._tensors)).encode()).hexdigest()[:12]
        path = self._directory / f"inputs-{kind}-{name}.json"
        if not path.exists():
            entries = self._pool.entries
            with path.open("wb") as file:
                file.write(b'{"data":[')
                file.write(b",".join([entries[i] for i in order.tolist()]))
                file.write(b"]}")
        return path

    @cached_property
    def _pool(self) -> _Pool:
        if isinstance(self._spec, FileInputs):
            return _read_pool(self._spec.file)
        return _random_pool(self._spec, self._tensors)


def sample(unique: int, exponent: float, length: int, seed: int) -> npt.NDArray[np.int64]:
    """Independent draws of 0 to ``unique - 1``, n drawn in proportion to (n+1)**-exponent.

    Exponent 0 is the uniform distribution; 0.9 is about what web caches see (Breslau et al.,
    INFOCOM 1999).
    """
    weights = np.arange(1, unique + 1, dtype=float) ** -exponent
    cumulative = np.cumsum(weights)
    draws = np.random.default_rng((seed, _ORDER)).random(length) * cumulative[-1]
    order: npt.NDArray[np.int64] = np.searchsorted(cumulative, draws, side="right")
    return order


def sampled_length(steps: int, at_most: int) -> int:
    """Length of a sampled list for ``steps`` inputs.

    A power of two, so that loads share files,
    less what it takes to be coprime with every number of threads perf_analyzer may use.
    """
    length = min(1 << max(steps - 1, 1).bit_length(), max(at_most, 1))
    threads = math.lcm(*range(1, MAX_THREADS + 1))
    while math.gcd(length, threads) > 1:
        length -= 1
    return length


def _random_pool(spec: RandomInputs, tensors: Sequence[TensorShape]) -> _Pool:
    raw_bytes = sum(content_bytes(t, spec.string_length) for t in tensors)
    fitting = max(MAX_FILE_BYTES // (raw_bytes * 4 // 3 + 64 * len(tensors)), 1)
    wanted = min(spec.unique, fitting, MAX_STEPS)
    rng = np.random.default_rng(_POOL_SEED)
    inputs: dict[tuple[bytes, ...], None] = {}  # a set that keeps the order
    for _ in range(_DRAWS):
        missing = wanted - len(inputs)
        if not missing:
            break
        columns = [
            random_contents(t, missing, rng, spec.int_range, spec.string_length) for t in tensors
        ]
        inputs.update(dict.fromkeys(zip(*columns, strict=True)))
    warnings = []
    if wanted < spec.unique:
        warnings.append(
            f"Only {wanted} of {spec.unique} unique inputs are used: "
            "perf_analyzer would take too long to read more."
        )
    if len(inputs) < wanted:
        warnings.append(
            f"Only {len(inputs)} of {spec.unique} unique inputs exist within int_range."
        )
    return _Pool(tuple(_entry(tensors, contents) for contents in inputs), tuple(warnings))


def _entry(tensors: Sequence[TensorShape], contents: Sequence[bytes]) -> bytes:
    values = {
        tensor.name: {"b64": base64.b64encode(content).decode(), "shape": tensor.shape}
        for tensor, content in zip(tensors, contents, strict=True)
    }
    return json.dumps(values, separators=(",", ":")).encode()


def _read_pool(path: Path) -> _Pool:
    """The steps of a user's file in perf_analyzer's format."""
    try:
        data = json.loads(path.read_bytes())["data"]
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise SpecError(
            f"{path}: not in perf_analyzer's input format: {error}",
            'it must be JSON like {"data": [{"INPUT": [1, 2, 3]}, ...]}',
        ) from error
    if not data or not all(isinstance(step, dict) for step in data):
        raise SpecError(
            f"{path}: inputs can only be sampled from one flat list of steps",
            "use repeat: {kind: none} for sequences of steps",
        )
    return _Pool(tuple(json.dumps(step, separators=(",", ":")).encode() for step in data))
