"""Sends each batch size to a freshly loaded model until its answers take about the same time.

For requests of several shapes, it sends each size of each shape.

Many backends do extra work for a shape that is new to them, once per instance: autotuning of
convolutions, TensorRT's lazy modules, torch.compile, which compiles on the second call. If a batch
size first appeared under load, this work would take seconds of the window, and a config with
batching would pay many times what a config without batching pays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tuner.errors import LoadFailedError, SpecError
from tuner.load.client.calls import asking
from tuner.load.setup import Stream
from tuner.load.traffic.encoding import build
from tuner.measurement.batch_profile import BatchCall
from tuner.reason import Fact, Reason, ReasonKind

#: Up to this batch size every size is sent, above it only doubled sizes.
EACH = 16
#: After this time, not counting calls that were slow only at first, the remaining sizes are left
#: to the load. So are requests above this total size.
MOST_S, MOST_BYTES = 5.0, 64 << 20
#: Most calls of a size whose answers never take about the same time.
MOST_TIMES = 10
#: Two answers take about the same time if one takes at most twice as long, or this much longer.
ALIKE_S = 0.005
#: Number of times that a batch is timed; the shortest time counts.
TWICE = 2
#: Requests that start within this share of an answer's duration count as simultaneous.
LITTLE = 0.25
#: First calls that take this much longer than later ones are reported.
SLOW_CALL_S = 0.2
#: Requests this far apart, beyond the batcher's delay, form no batch while instances are idle. A
#: busy machine needs a larger distance: about half an answer's duration, but no more than this.
APART_S, MOST_APART_S = 0.001, 0.02


@dataclass(frozen=True)
class CallTimes:
    """Calls of one batch size.

    Attributes:
        longest_s: Duration of the longest call.
        usual_s: Duration of the shortest call.
        slow_count: Number of calls before two took about the same time.
    """

    longest_s: float
    usual_s: float
    slow_count: int = 1


#: Calls by batch size.
Sizes = Mapping[int, CallTimes]


@dataclass(frozen=True)
class FirstCalls:
    """The first calls of a freshly loaded model.

    Attributes:
        sizes: Calls by batch size, for sizes sent until their answers were steady.
        left: Batch sizes that were not sent until their answers were steady.
        batch_calls: Durations of batches, by size and by instances at work.
        unlike_config: Outputs whose type or shape differs from the config, one clause each.
    """

    model: str
    sizes: Sizes = field(default_factory=dict)
    left: Sequence[int] = ()
    batch_calls: tuple[BatchCall, ...] = ()
    unlike_config: Sequence[str] = ()

    @property
    def remarks(self) -> tuple[Reason, ...]:
        """What the user must know once in a run: each config of the model gives the same."""
        remarks = []
        if self.left:
            facts: dict[str, Fact] = {"model": self.model, "sizes": listed(self.left)}
            remarks.append(Reason(ReasonKind.SIZES_NOT_WARM, facts=facts))
        if self.unlike_config:
            facts = {"model": self.model, "differences": "; ".join(self.unlike_config)}
            remarks.append(Reason(ReasonKind.UNLIKE_CONFIG, facts=facts))
        return tuple(remarks)

    @property
    def slow_sizes(self) -> Sizes:
        return {n: c for n, c in self.sizes.items() if c.longest_s - c.usual_s > SLOW_CALL_S}

    @property
    def slow(self) -> Reason | None:
        """A warning for users of the model; None if no first call was slow."""
        if not (slow := self.slow_sizes):
            return None
        longest_s = float(max(calls.longest_s for calls in slow.values()))
        facts: dict[str, Fact] = {"sizes": listed(slow), "longest_s": longest_s}
        return Reason(ReasonKind.SLOW_FIRST_CALLS, facts=facts)


def warm_batches(
    stream: Stream, config: Any, instances: int, patience_s: float, *first_s: float
) -> FirstCalls:
    """Sends each instance a batch of each size, as one request; leaves errors to the load.

    Sizes that alone take longer than an SLO allows are not sent: the model cannot sustain a load
    under which they form.

    Args:
        config: The ``ModelConfig`` of the model, as it runs.
        patience_s: Longest wait for an answer.
        first_s: Duration of each instance's first answer, to one request as the workload sends it.
    """
    calls, left = dict[int, CallTimes](), set[int]()
    rows, form = list[BatchCall](), stream.form
    usual_s = bytes_each = 0.0
    with asking(stream.target.endpoints) as method:
        caller = _BatchCaller(stream.target.future_by(method), config, instances, patience_s)
        sizes = batch_sizes(config, form.batch_size)
        for size, shape in ((size, shape) for size in sizes for shape in stream.shapes):
            slow = (row for row in rows if row.seconds > stream.requests.within_s)
            if any(row.instances == 1 and row.size <= size for row in slow):
                continue
            if usual_s > MOST_S or bytes_each * size * instances > MOST_BYTES:
                left.add(size)
                continue
            try:
                (question,) = build(shape.inputs.first(1), replace(form, batch_size=size), 1)
            except (LoadFailedError, SpecError):
                break
            bytes_each = len(question) / size
            took_s, first_s = caller.until_steady(question, first_s), ()
            if not _steady(took_s):
                left.add(size)
            else:
                times = CallTimes(max(took_s), min(took_s), max(len(took_s) - 2, 1))
                calls[size] = max(times, calls.get(size, times), key=lambda c: c.longest_s)
                timed = [*caller.timed(question, size, form.batch_size, min(took_s))]
                usual_s += TWICE * sum(row.seconds for row in timed) * (instances > 1)
                rows += timed
            usual_s += len(took_s) * min(took_s, default=0.0)
    return FirstCalls(stream.requests.model, calls, sorted(left), tuple(rows))


class _BatchCaller:
    """Sends batches to the instances of one model."""

    def __init__(
        self, future: Callable[..., Any], config: Any, instances: int, patience_s: float
    ) -> None:
        self._future, self._config, self._instances = future, config, instances
        self._delay_s = config.dynamic_batching.max_queue_delay_microseconds / 1e6
        self._patience_s, self._deadline_s = patience_s, time.monotonic() + patience_s
        self._answer_s = 0.0

    def until_steady(self, question: bytes, first_s: Sequence[float]) -> list[float]:
        """Calls each instance until two calls took about the same time; seconds of each call."""
        took_s = [*first_s]
        while not _steady(took_s) and len(took_s) < MOST_TIMES:
            if (left_s := self._deadline_s - time.monotonic()) <= 0.0:
                break
            apart_s = self._delay_s + min(max(self._answer_s / 2, APART_S), MOST_APART_S)
            took_s.append(
                _seconds_of_calls(self._future, question, self._instances, apart_s, left_s)
            )
            self._answer_s = min(took_s) - (self._instances - 1) * apart_s
        return took_s

    def timed(self, question: bytes, size: int, least: int, usual_s: float) -> Iterator[BatchCall]:
        """How long a batch of a doubled size takes, alone and beside other batches.

        Simultaneous requests of the largest size cannot form one batch. Smaller ones start a little
        apart, if that is little compared with their duration. ``usual_s``: time until each instance
        has answered.
        """
        count, most = size // least, self._config.max_batch_size
        if count & (count - 1) == 0 or size == most:
            preferred = self._config.dynamic_batching.preferred_batch_size
            waits_s = 0.0 if size == most or size in preferred else self._delay_s
            took_s = usual_s if self._instances == 1 else self._shortest_s(question, 1, 0.0)
            alone_s = max(took_s - waits_s, 1e-6)
            yield BatchCall(size, 1, alone_s)
            apart_s = 0.0 if size == most else APART_S
            little = waits_s == 0.0 and apart_s * (self._instances - 1) <= LITTLE * alone_s
            if self._instances > 1 and little:
                both_s = self._shortest_s(question, self._instances, apart_s)
                yield BatchCall(size, self._instances, both_s)

    def _shortest_s(self, question: bytes, instances: int, apart_s: float) -> float:
        seconds = partial(
            _seconds_of_calls, self._future, question, instances, apart_s, self._patience_s
        )
        return min(seconds() for _ in range(TWICE))


def batch_sizes(config: Any, least: int) -> list[int]:
    """Sizes that the dynamic batcher of a ``ModelConfig`` may form, the doubled sizes first.

    Empty for a model that takes sequences: one request cannot belong to several of them.

    Args:
        least: Inferences in one request of the workload.
    """
    if config.HasField("sequence_batching"):
        return []
    if config.response_cache.enable:
        return []  # the cache would keep these answers
    most = config.max_batch_size // least if config.HasField("dynamic_batching") else 1
    doubled = [2**power for power in range(most.bit_length())] or [1]
    others = {*range(1, min(EACH, most) + 1), max(most, 1)} - {*doubled}
    return [count * least for count in (*doubled, *sorted(others))]


def _seconds_of_calls(
    future: Callable[..., Any], question: bytes, instances: int, apart_s: float, patience_s: float
) -> float:
    """Seconds until each instance has answered once."""
    begin, calls = time.monotonic(), list[Any]()
    while len(calls) < instances:
        if calls:
            time.sleep(apart_s)
        calls.append(future(question, timeout=patience_s))
    for call in calls:
        call.exception()
    return time.monotonic() - begin


def _steady(took_s: Sequence[float]) -> bool:
    """Whether the last two calls took about the same time."""
    fast, slow = sorted(took_s[-2:]) if len(took_s) > 1 else (0.0, float("inf"))
    return slow <= max(2.0 * fast, fast + ALIKE_S)


def listed(sizes: Collection[int]) -> str:
    first, last = min(sizes), max(sizes)
    if len(sizes) == 1:
        return f"batch size {first}"
    if len(sizes) == last - first + 1 > 2:
        return f"batch sizes {first} to {last}"
    return f"batch sizes {', '.join(map(str, sorted(sizes)))}"
