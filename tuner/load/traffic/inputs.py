"""What requests carry: inferences in the order of a run, drawn from a seed or read from a file.

A run goes round a list of inferences, so repeats are drawn beforehand (see `traffic.repeats`).
perf_analyzer's T threads start at entries 0 to T-1 of the list and go on in steps of T: the length
of a list of repeats shares no divisor with T, or each thread would see its own share of it again
and again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from tuner.errors import SpecError
from tuner.load import seeds
from tuner.load.traffic import repeats
from tuner.load.traffic.encoding import TensorShape, random_contents, request_bytes
from tuner.load.traffic.repeats import Order
from tuner.load.traffic.request_file import read_requests
from tuner.load.traffic.wire import Content, Tensors
from tuner.reason import Fact, Reason, ReasonKind
from tuner.spec.workload import (
    DuplicatesRepeat,
    FileInputs,
    LogRepeat,
    NoRepeat,
    RandomInputs,
    Repeat,
    ZipfRepeat,
)

#: Lists are not longer than what fits into such an input file of perf_analyzer, which reads all of
#: one before it starts: that takes it some 20 us a step.
MAX_FILE_BYTES = 64 << 20
MAX_STEPS = 1 << 15
#: More threads of perf_analyzer gain nothing: all requests are asynchronous, and on a small machine
#: sixteen threads cost a third more CPU than four.
MAX_THREADS = 4
#: Different inputs of a distribution when the spec names no number.
DEFAULT_UNIQUE = 1000
_DRAWS = 20  # rounds of replacing inputs that were drawn twice


@dataclass(frozen=True)
class RunInputs:
    """What the inferences of one run carry.

    Attributes:
        inferences: Without the batch, in their order; those that are alike are one object.
        sampled_count: Length of the list, after which the run repeats it and it no longer has the
            repeats asked for; None where inputs are used in turn anyway.
        warnings: What does not match the spec.
    """

    inferences: Sequence[Tensors]
    sampled_count: int | None
    warnings: tuple[Reason, ...] = ()


class InputSource(Protocol):
    """What the requests of a stream carry that have one shape."""

    def of_run(self, seed: int, count: int, lines: Order | None = None) -> RunInputs:
        """Inputs for one run of about ``count`` inferences.

        ``lines``: the numbers of its requests in a recording, if one is replayed, or in a file of
        sequences.
        """

    def first(self, count: int) -> Sequence[Tensors]:
        """The first ``count`` inputs, the same in each call, or all there are."""

    def remembered(self, seed: int) -> Sequence[Tensors]:
        """What a cache of unlimited size holds under this traffic, the latest last."""


@dataclass(frozen=True)
class _Pool:
    """Different inputs, the most popular first."""

    inferences: Sequence[Tensors]
    warnings: tuple[Reason, ...] = ()

    def in_order(self, order: Order) -> list[Tensors]:
        return [self.inferences[i] for i in order.tolist()]


class DrawnInputs:
    """Draws the inputs of runs.

    Inputs that are to be new are new in every call of `of_run`, whatever the seed: a cache would
    recognise repeated ones. So use one object for each server.

    Args:
        cached: Whether the server has a response cache now. If so, a seed that is used again
            gets another order: the cache may still hold all that the first one asked for.
    """

    def __init__(
        self,
        spec: RandomInputs | FileInputs,
        tensors: Sequence[TensorShape],
        cached: Callable[[], bool] = lambda: True,
    ) -> None:
        self._spec = spec
        self._tensors = tuple(tensors)
        self._cached = cached
        self._calls = 0  # for new inputs
        self._orders: Counter[int] = Counter()  # so many of each seed

    def of_run(self, seed: int, count: int, lines: Order | None = None) -> RunInputs:
        """Inputs for one run that will need about ``count`` of them, in an order of the seed's.

        ``lines``: those of a recording, of which only the times count here.

        Raises:
            SpecError: A file of the user's does not fit.
        """
        del lines
        repeat = self._spec.repeat
        if isinstance(repeat, NoRepeat) and isinstance(self._spec, FileInputs):
            return RunInputs(self._pool.inferences, None)
        length = sampled_length(count, self._most_entries)
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
        return RunInputs(pool.in_order(order), length, pool.warnings)

    def first(self, count: int) -> Sequence[Tensors]:
        """The ``count`` most popular different inputs, or all there are.

        Raises:
            SpecError: As `of_run`.
        """
        return self._pool.inferences[:count]

    def remembered(self, seed: int) -> Sequence[Tensors]:
        """Every input that comes back, once, the one asked for last at the end.

        An LRU cache that was asked for these in this order holds what it would after traffic
        without end. None of them when no input of one measurement is asked for in the next.

        Raises:
            SpecError: As `of_run`.
        """
        repeat, pool = self._spec.repeat, self._pool
        if isinstance(repeat, LogRepeat):
            return pool.in_order(repeats.recency_of_log(self._log))
        if isinstance(repeat, (NoRepeat, DuplicatesRepeat)):
            return pool.inferences if isinstance(self._spec, FileInputs) else ()
        return pool.in_order(repeats.recency_of_draws(self._popularity(repeat), seed))

    def _of_new_ones(self, repeat: Repeat, seed: int, length: int) -> RunInputs:
        """Contents that no other measurement on this server has, as far as there are any."""
        self._calls += 1
        assert isinstance(self._spec, RandomInputs)  # a file has no new ones
        unique = self._spec.unique
        in_turn = isinstance(repeat, NoRepeat) and unique is not None
        if isinstance(repeat, DuplicatesRepeat):
            order = repeats.duplicate(float(repeat.share), length, seed)
        else:
            order = np.arange(length if unique is None else min(unique, self._most_entries))
        stream = (seeds.INPUTS, seed, self._calls)
        pool = _random_pool(self._spec, self._tensors, unique or int(order.max()) + 1, stream)
        inferences = pool.in_order(order % len(pool.inferences))
        return RunInputs(inferences, None if in_turn else len(order), pool.warnings)

    def _popularity(self, repeat: Repeat) -> Any:
        exponent = repeat.exponent if isinstance(repeat, ZipfRepeat) else 0.0
        return repeats.popularity(len(self._pool.inferences), exponent)

    @cached_property
    def _pool(self) -> _Pool:
        """The inputs that are the same in all measurements."""
        if isinstance(self._spec, FileInputs):
            pool = _Pool(read_requests(self._spec.file, self._tensors).entries)
        else:
            wanted = self._spec.unique or DEFAULT_UNIQUE
            if isinstance(self._spec.repeat, LogRepeat) and self._spec.unique is None:
                wanted = int(self._log.max()) + 1
            pool = _random_pool(self._spec, self._tensors, wanted, (seeds.INPUTS,))
        if isinstance(self._spec.repeat, LogRepeat) and self._log.max() >= len(pool.inferences):
            raise SpecError(
                f"{self._spec.repeat.file}: asks for input {self._log.max()}, but there are only "
                f"{len(pool.inferences)}, numbered from 0"
            )
        return pool

    @cached_property
    def _log(self) -> Order:
        assert isinstance(self._spec.repeat, LogRepeat)
        return repeats.read_log(self._spec.repeat.file)

    @cached_property
    def _most_entries(self) -> int:
        """Length of the longest list."""
        if isinstance(self._spec, FileInputs):
            return _fitting(max(map(_file_bytes, self._pool.inferences)))
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
    """How many random inputs one list has at the most."""
    return _fitting(_entry_bytes(spec, tensors))


def _fitting(largest_bytes: int) -> int:
    return max(min(MAX_FILE_BYTES // largest_bytes, MAX_STEPS), 1)


def _file_bytes(inference: Tensors) -> int:
    """About what perf_analyzer's input file has of it."""
    return sum(len(content.raw) for content in inference.values()) * 4 // 3 + 64 * len(inference)


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
        facts: dict[str, Fact] = {
            "used_count": wanted,
            "wanted_count": unique,
            "limit_mib": MAX_FILE_BYTES >> 20,
        }
        warnings.append(Reason(ReasonKind.UNIQUE_INPUTS_TOO_LARGE, facts=facts))
    if len(inputs) < wanted:
        facts = {"used_count": len(inputs), "wanted_count": unique}
        warnings.append(Reason(ReasonKind.UNIQUE_INPUTS_TOO_FEW, facts=facts))

    return _Pool(
        [
            {t.name: Content(t.shape, raw) for t, raw in zip(tensors, drawn, strict=True)}
            for drawn in inputs
        ],
        tuple(warnings),
    )
