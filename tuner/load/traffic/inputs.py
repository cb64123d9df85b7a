"""Inputs of requests: inferences in the order of a run, drawn from a seed or read from a file.

A run repeats a list of inferences, so repeats are drawn beforehand (see `traffic.repeats`).
perf_analyzer's T threads start at entries 0 to T-1 of the list and continue in steps of T. So the
length of a list with repeats has no common divisor with T; otherwise each thread would cycle
through a part of the list only.
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
    UniformRepeat,
    ZipfRepeat,
)

#: Limits of a list: perf_analyzer reads its whole input file before it starts, which takes it about
#: 20 us per step.
MAX_FILE_BYTES = 64 << 20
MAX_STEPS = 1 << 15
#: More perf_analyzer threads gain nothing: all requests are asynchronous, and on a small machine,
#: sixteen threads use a third more CPU than four.
MAX_THREADS = 4
#: Number of distinct inputs of a distribution if the spec names none.
DEFAULT_UNIQUE = 1000
_DRAWS = 20  # rounds of replacing inputs that were drawn twice


@dataclass(frozen=True)
class RunInputs:
    """The inferences of one run.

    Attributes:
        inferences: In their order, without the batch; equal inferences are the same object.
        sampled_count: Length of the list, after which the run repeats it and the repeats no longer
            match the spec; None if the spec asks for inputs in turn.
        warnings: What does not match the spec.
    """

    inferences: Sequence[Tensors]
    sampled_count: int | None
    warnings: tuple[Reason, ...] = ()


class InputSource(Protocol):
    """Source of the inputs of a stream's requests of one shape."""

    def of_run(self, seed: int, count: int, lines: Order | None = None) -> RunInputs:
        """Inputs for one run of about ``count`` inferences.

        Args:
            seed: Seed of their order.
            count: Number of inferences.
            lines: Numbers of the run's requests in a recording, or in a file of sequences; None
                without one.
        """

    def first(self, count: int) -> Sequence[Tensors]:
        """The first ``count`` inputs, the same in each call, or all there are."""

    def remembered(self, seed: int) -> Sequence[Tensors]:
        """What a cache of unlimited size contains after this traffic, most recent last."""


@dataclass(frozen=True)
class _Pool:
    """Distinct inputs, the most popular first."""

    inferences: Sequence[Tensors]
    warnings: tuple[Reason, ...] = ()

    def in_order(self, order: Order) -> list[Tensors]:
        return [self.inferences[i] for i in order.tolist()]


class DrawnInputs:
    """Draws the inputs of runs.

    Inputs that the spec wants new are new in every call of `of_run`, whatever the seed: a cache
    would recognize repeated ones. So use one object per server.

    Args:
        tensors: The model's inputs.
        cached: Whether the server has a response cache now. If so, a repeated seed gets another
            order: the cache may still have all answers to the first one.
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
        self._orders: Counter[int] = Counter()  # calls by seed

    def of_run(self, seed: int, count: int, lines: Order | None = None) -> RunInputs:
        """Inputs for one run of about ``count`` inferences, in an order that the seed determines.

        Args:
            seed: Seed of the order.
            count: Number of inferences.
            lines: Ignored: of a recording, only the times matter here.

        Raises:
            SpecError: A file of the user does not fit the model.
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
        """The ``count`` most popular distinct inputs, or all there are.

        Raises:
            SpecError: As `of_run`.
        """
        return self._pool.inferences[:count]

    def remembered(self, seed: int) -> Sequence[Tensors]:
        """Every input that comes back, once, the most recently used last.

        An LRU cache that receives them in this order ends up as after infinite traffic. Empty if no
        input of one measurement comes back in the next.

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
        """Contents that no other measurement on this server has, as far as there are enough."""
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

    def _popularity(self, repeat: UniformRepeat | ZipfRepeat) -> Any:
        return repeats.popularity(len(self._pool.inferences), repeat.exponent)

    @cached_property
    def _pool(self) -> _Pool:
        """The inputs that all measurements share."""
        if isinstance(self._spec, FileInputs):
            pool = _Pool(read_requests(self._spec.file, self._tensors).entries)
        else:
            wanted = self._spec.unique or DEFAULT_UNIQUE
            if isinstance(self._spec.repeat, LogRepeat) and self._spec.unique is None:
                wanted = int(self._log.max()) + 1
            pool = _random_pool(self._spec, self._tensors, wanted, (seeds.INPUTS,))
        if isinstance(self._spec.repeat, LogRepeat) and self._log.max() >= len(pool.inferences):
            raise SpecError(
                f"{self._spec.repeat.file}: line with input {self._log.max()}, but there are only "
                f"{len(pool.inferences)} inputs, numbered from 0"
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

    It is a power of two, so that loads share files, minus what makes it coprime with every number
    of threads that perf_analyzer may use.
    """
    length = min(1 << max(steps - 1, 1).bit_length(), max(at_most, 1))
    threads = math.lcm(*range(1, MAX_THREADS + 1))
    while math.gcd(length, threads) > 1:
        length -= 1
    return length


def most_entries(spec: RandomInputs, tensors: Sequence[TensorShape]) -> int:
    """The largest number of random inputs in one list."""
    return _fitting(request_bytes(tensors, spec.string_length) * 4 // 3 + 64 * len(tensors))


def _fitting(largest_bytes: int) -> int:
    return max(min(MAX_FILE_BYTES // largest_bytes, MAX_STEPS), 1)


def _file_bytes(inference: Tensors) -> int:
    """Approximate size of an inference in perf_analyzer's input file."""
    return sum(len(content.raw) for content in inference.values()) * 4 // 3 + 64 * len(inference)


def _random_pool(
    spec: RandomInputs, tensors: Sequence[TensorShape], unique: int, seed: tuple[int, ...]
) -> _Pool:
    """``unique`` distinct contents, or as many as exist."""
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
