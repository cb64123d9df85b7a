"""What requests carry: input files for perf_analyzer's ``--input-data``.

perf_analyzer can only go round a list of inputs, so repeats are drawn beforehand (see
`traffic.repeats`) and written out as a long flat list. Its T threads start at entries 0 to T-1
and go on in steps of T: the length of such a list shares no divisor with T, or each thread would
see its own share of it again and again. Contents are written as base64 of Triton's binary form:
exact for every datatype, and a quarter of the size of a decimal float.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import SpecError
from tuner.load import seeds
from tuner.load.traffic import repeats
from tuner.load.traffic.encoding import TensorShape, random_contents, read_recorded, request_bytes
from tuner.load.traffic.repeats import Order
from tuner.load.traffic.wire import Content
from tuner.spec.workload import (
    DuplicatesRepeat,
    FileInputs,
    LogRepeat,
    NoRepeat,
    RandomInputs,
    Repeat,
    ZipfRepeat,
)

#: Larger input files are not written: perf_analyzer reads all of one before it starts, which
#: takes it some 20 us a step.
MAX_FILE_BYTES = 64 << 20
MAX_STEPS = 1 << 15
#: More threads of perf_analyzer gain nothing: all requests are asynchronous, and on a small machine
#: sixteen threads cost a third more CPU than four.
MAX_THREADS = 4
#: Different inputs of a distribution when the spec names no number.
DEFAULT_UNIQUE = 1000
_DRAWS = 20  # rounds of replacing inputs that were drawn twice


@dataclass(frozen=True)
class InputFile:
    """A file for ``--input-data``.

    Attributes:
        sampled_steps: Length of the list, after which perf_analyzer repeats it and it no longer
            has the repeats asked for; None where inputs are used in turn anyway.
        warnings: What does not match the spec, one sentence each.
    """

    path: Path
    sampled_steps: int | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Pool:
    """Different inputs, the most popular first; ``encode`` makes one into a JSON object."""

    contents: Sequence[Any]
    encode: Callable[[Any], bytes]
    warnings: tuple[str, ...] = ()


class InputFiles:
    """Writes each input file once, into a directory that somebody else owns.

    Inputs that are to be new are new in every call of `file`, whatever the seed: a cache would
    recognise repeated ones. So use one object for each server.

    Args:
        cached: Whether the server has a response cache now. If so, a seed that is used again
            gets another order: the cache may still hold all that the first one asked for.
    """

    def __init__(
        self,
        spec: RandomInputs | FileInputs,
        tensors: Sequence[TensorShape],
        directory: Path,
        cached: Callable[[], bool] = lambda: True,
    ) -> None:
        self._spec = spec
        self._tensors = tuple(tensors)
        self._directory = directory
        self._cached = cached
        self._calls = 0  # for new inputs
        self._orders: Counter[int] = Counter()  # so many of each seed
        self._last_of_new: Path | None = None

    def file(self, seed: int, steps: int, lines: Order | None = None) -> InputFile:
        """Inputs for one run that will need about ``steps`` of them, in an order of the seed's.

        The file is good until the next call. ``lines``: those of a recording, of which only the
        times count here.

        Raises:
            SpecError: A file of the user's does not fit.
        """
        del lines
        repeat = self._spec.repeat
        if isinstance(repeat, NoRepeat) and isinstance(self._spec, FileInputs):
            return InputFile(self.first(len(self._pool.contents)), None)
        length = sampled_length(steps, self._most_steps)
        if isinstance(repeat, (NoRepeat, DuplicatesRepeat)):
            return self._of_new_ones(repeat, seed, length)
        pool = self._pool
        if self._cached():
            self._orders[seed] += 1
            seed = seeds.of_order(seed, self._orders[seed] - 1)
        if isinstance(repeat, LogRepeat):
            order = repeats.replay(self._log, length, seed)
        else:
            order = repeats.sample(self._popularity(repeat), length, seed)
        path = self._written(f"{seed}-{length}", pool, order)
        return InputFile(path, length, pool.warnings)

    def first(self, count: int) -> Path:
        """A file of the ``count`` most popular different inputs, or of all there are.

        Raises:
            SpecError: As `file`.
        """
        order = np.arange(min(count, len(self._pool.contents)))
        return self._written(f"first-{count}", self._pool, order)

    def remembered(self, seed: int) -> Path | None:
        """Every input that comes back, once, the one asked for last at the end.

        An LRU cache that was asked for these in this order holds what it would after traffic
        without end. None when no input of one measurement is asked for in the next.

        Raises:
            SpecError: As `file`.
        """
        repeat, pool = self._spec.repeat, self._pool
        if isinstance(repeat, LogRepeat):
            order = repeats.recency_of_log(self._log)
        elif isinstance(repeat, (NoRepeat, DuplicatesRepeat)):
            if not isinstance(self._spec, FileInputs):
                return None
            order = np.arange(len(pool.contents))
        else:
            order = repeats.recency_of_draws(self._popularity(repeat), seed)
        return self._written(f"{seed}-remembered", pool, order)

    def _of_new_ones(self, repeat: Repeat, seed: int, length: int) -> InputFile:
        """Contents that no other measurement on this server has, as far as there are any."""
        self._calls += 1
        assert isinstance(self._spec, RandomInputs)  # a file has no new ones
        unique = self._spec.unique
        in_turn = isinstance(repeat, NoRepeat) and unique is not None
        if isinstance(repeat, DuplicatesRepeat):
            order = repeats.duplicate(float(repeat.share), length, seed)
        else:
            order = np.arange(length if unique is None else min(unique, self._most_steps))
        stream = (seeds.INPUTS, seed, self._calls)
        pool = _random_pool(self._spec, self._tensors, unique or int(order.max()) + 1, stream)
        name = f"{seed}-{self._calls}-{len(order)}"
        path = self._written(name, pool, order % len(pool.contents))
        if self._last_of_new is not None:
            self._last_of_new.unlink(missing_ok=True)  # they would fill the disk
        self._last_of_new = path
        return InputFile(path, None if in_turn else len(order), pool.warnings)

    def _popularity(self, repeat: Repeat) -> Any:
        exponent = repeat.exponent if isinstance(repeat, ZipfRepeat) else 0.0
        return repeats.popularity(len(self._pool.contents), exponent)

    def _written(self, name: str, pool: _Pool, order: Order) -> Path:
        kind = hashlib.sha256(repr((self._spec, self._tensors)).encode()).hexdigest()[:12]
        path = self._directory / f"inputs-{kind}-{name}.json"
        if not path.exists():
            used = {i: pool.encode(pool.contents[i]) for i in np.unique(order).tolist()}
            with path.open("wb") as file:
                file.write(b'{"data":[')
                file.write(b",".join([used[i] for i in order.tolist()]))
                file.write(b"]}")
        return path

    @cached_property
    def _pool(self) -> _Pool:
        """The inputs that are the same in all measurements."""
        if isinstance(self._spec, FileInputs):
            entries = read_recorded(self._spec.file, self._tensors)
            pool = _Pool(tuple(map(entry_json, entries)), bytes)
        else:
            wanted = self._spec.unique or DEFAULT_UNIQUE
            if isinstance(self._spec.repeat, LogRepeat) and self._spec.unique is None:
                wanted = int(self._log.max()) + 1
            pool = _random_pool(self._spec, self._tensors, wanted, (seeds.INPUTS,))
        if isinstance(self._spec.repeat, LogRepeat) and self._log.max() >= len(pool.contents):
            raise SpecError(
                f"{self._spec.repeat.file}: asks for input {self._log.max()}, but there are only "
                f"{len(pool.contents)}, numbered from 0"
            )
        return pool

    @cached_property
    def _log(self) -> Order:
        assert isinstance(self._spec.repeat, LogRepeat)
        return repeats.read_log(self._spec.repeat.file)

    @cached_property
    def _most_steps(self) -> int:
        """Length of the longest list that is written."""
        if isinstance(self._spec, FileInputs):
            return _fitting(max(map(len, self._pool.contents)) + 1)
        return most_entries(self._spec, self._tensors)


def sampled_length(steps: int, at_most: int) -> int:
    """Length of a sampled list for ``steps`` inputs.

    It is a power of two, so that loads share files, less what it takes to be coprime with every
    number of threads perf_analyzer may use.
    """
    length = min(1 << max(steps - 1, 1).bit_length(), max(at_most, 1))
    threads = math.lcm(*range(1, MAX_THREADS + 1))
    while math.gcd(length, threads) > 1:
        length -= 1
    return length


def most_entries(spec: RandomInputs, tensors: Sequence[TensorShape]) -> int:
    """How many inputs one file of random ones has at the most."""
    return _fitting(_entry_bytes(spec, tensors))


def _fitting(largest_bytes: int) -> int:
    return max(min(MAX_FILE_BYTES // largest_bytes, MAX_STEPS), 1)


def _entry_bytes(spec: RandomInputs, tensors: Sequence[TensorShape]) -> int:
    return request_bytes(tensors, spec.string_length) * 4 // 3 + 64 * len(tensors)


def _random_pool(
    spec: RandomInputs, tensors: Sequence[TensorShape], unique: int, seed: tuple[int, ...]
) -> _Pool:
    """``unique`` different contents, or as many as there can be."""
    wanted = min(unique, most_entries(spec, tensors))
    rng = np.random.default_rng(seed)
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
    if wanted < unique:
        warnings.append(
            f"Only {wanted} of {unique} unique inputs are used: more would take over "
            f"{MAX_FILE_BYTES >> 20} MiB."
        )
    if len(inputs) < wanted:
        warnings.append(f"Only {len(inputs)} of {unique} unique inputs exist within int_range.")

    def encode(drawn: Sequence[bytes]) -> bytes:
        pairs = zip(tensors, drawn, strict=True)
        return entry_json({tensor.name: Content(tensor.shape, raw) for tensor, raw in pairs})

    return _Pool(tuple(inputs), encode, tuple(warnings))


def entry_json(contents: Mapping[str, Content]) -> bytes:
    values = {
        name: {"b64": base64.b64encode(content.raw).decode(), "shape": content.shape}
        for name, content in contents.items()
    }
    return json.dumps(values, separators=(",", ":")).encode()
