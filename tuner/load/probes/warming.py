"""Asks a model that was just loaded for each batch size, until its answers take about the same.

Of requests of several shapes, each size of each shape.

Many backends do extra work for a shape they have not seen, once for each instance: autotuning of
convolutions, TensorRT's lazy modules, torch.compile, which compiles with the second call. If a
batch size first came up under load, this work would take seconds out of the window, and a config
with batching would pay many times what one without pays.
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

#: Batches of up to so many requests are all asked for, then only doubled ones.
EACH = 16
#: Sizes that are not asked for after so long, without what was slow only at first, are left to the
#: load, and so are requests that are together larger than this.
MOST_S, MOST_BYTES = 5.0, 64 << 20
#: A size whose answers never take about the same is asked for so often.
MOST_TIMES = 10
#: Two answers take about the same if one takes at most twice as long, or this much longer.
ALIKE_S = 0.005
#: A batch is timed so often, and the shorter time counts.
TWICE = 2
#: Requests that are apart by no more than this share of an answer are at work at once.
LITTLE = 0.25
#: First calls that took so much longer than later ones are told.
SLOW_CALL_S = 0.2
#: Requests so far apart, beyond the batcher's delay, meet in no batch while instances are idle. On
#: a busy machine that takes longer, so they are about half an answer apart, but no more than this.
APART_S, MOST_APART_S = 0.001, 0.02


@dataclass(frozen=True)
class CallTimes:
    """The longest and the shortest call of a batch size, and how many came before two alike."""

    longest_s: float
    usual_s: float
    slow_count: int = 1


#: By batch size.
Sizes = Mapping[int, CallTimes]


@dataclass(frozen=True)
class FirstCalls:
    """How a model that was just loaded answered its first calls.

    Attributes:
        sizes: Those that were asked for until their answers were steady.
        left: Batch sizes that were not asked for until their answers were steady.
        batch_calls: How long batches took, by size and by instances at work.
        unlike_config: Outputs whose type or shape is not what the config says.
    """

    model: str
    sizes: Sizes = field(default_factory=dict)
    left: Sequence[int] = ()
    batch_calls: tuple[BatchCall, ...] = ()
    unlike_config: Sequence[str] = ()

    @property
    def remark(self) -> str:
        """What one note in a run tells, since it is alike for all configs; empty for nothing."""
        unlike = ""
        if self.unlike_config:
            what = "; ".join(self.unlike_config)
            unlike = f"{self.model} does not return what its config says: {what}. Triton does not "
            unlike += "check that, but clients that rely on the config fail."
        return " ".join(filter(None, (self.skipped, unlike)))

    @property
    def slow_sizes(self) -> Sizes:
        return {n: c for n, c in self.sizes.items() if c.longest_s - c.usual_s > SLOW_CALL_S}

    @property
    def slow(self) -> Reason | None:
        """What users of the model must know; None where nothing was slow."""
        if not (slow := self.slow_sizes):
            return None
        longest_s = float(max(calls.longest_s for calls in slow.values()))
        facts: dict[str, Fact] = {"sizes": listed(slow), "longest_s": longest_s}
        return Reason(ReasonKind.SLOW_FIRST_CALLS, facts=facts)

    @property
    def skipped(self) -> str:
        """What was left to the load; empty where nothing was."""
        if not self.left:
            return ""
        start = f"{self.model} is not asked for {listed(self.left)} before the load"
        return f"{start} until it is steady: they take too long, or are too large"


def warm_batches(
    stream: Stream, config: Any, instances: int, patience_s: float, *first_s: float
) -> FirstCalls:
    """Asks each instance for a batch of each size, as one request; errors are left to the load.

    Sizes that take longer by themselves than an SLO allows are not asked for: a load under which
    they form is not sustained. ``first_s``: What each instance's first answer, to one request as
    the workload sends it, took.
    """
    calls, left = dict[int, CallTimes](), set[int]()
    rows, form = list[BatchCall](), stream.form
    usual_s = bytes_each = 0.0
    with asking(stream.target.endpoints) as method:
        asker = _Asker(stream.target.future_by(method), config, instances, patience_s)
        sizes = batch_sizes(config, form.batch_size)
        for size, shape in ((size, shape) for size in sizes for shape in stream.shapes):
            if any(row.instances == 1 and row.size <= size for row in rows if _slow(row, stream)):
                continue
            if usual_s > MOST_S or bytes_each * size * instances > MOST_BYTES:
                left.add(size)
                continue
            try:
                (question,) = build(shape.inputs.first(1), replace(form, batch_size=size), 1)
            except (LoadFailedError, SpecError):
                break
            bytes_each = len(question) / size
            took_s, first_s = asker.until_steady(question, first_s), ()
            if not _steady(took_s):
                left.add(size)
            else:
                times = CallTimes(max(took_s), min(took_s), max(len(took_s) - 2, 1))
                calls[size] = max(times, calls.get(size, times), key=lambda c: c.longest_s)
                timed = [*asker.timed(question, size, form.batch_size, min(took_s))]
                usual_s += TWICE * sum(row.seconds for row in timed) * (instances > 1)
                rows += timed
            usual_s += len(took_s) * min(took_s, default=0.0)
    return FirstCalls(stream.target.model, calls, sorted(left), tuple(rows))


def _slow(row: BatchCall, stream: Stream) -> bool:
    return row.seconds > stream.requests.within_s


class _Asker:
    """Asks the instances of one model for batches."""

    def __init__(
        self, future: Callable[..., Any], config: Any, instances: int, patience_s: float
    ) -> None:
        self._future, self._config, self._instances = future, config, instances
        self._delay_s = config.dynamic_batching.max_queue_delay_microseconds / 1e6
        self._patience_s, self._deadline_s = patience_s, time.monotonic() + patience_s
        self._answer_s = 0.0

    def until_steady(self, question: bytes, first_s: Sequence[float]) -> list[float]:
        """Asks each instance until two calls took about the same; the seconds of each call."""
        took_s = [*first_s]
        while not _steady(took_s) and len(took_s) < MOST_TIMES:
            if (left_s := self._deadline_s - time.monotonic()) <= 0.0:
                break
            apart_s = self._delay_s + min(max(self._answer_s / 2, APART_S), MOST_APART_S)
            took_s.append(_ask(self._future, question, self._instances, apart_s, left_s))
            self._answer_s = min(took_s) - (self._instances - 1) * apart_s
        return took_s

    def timed(self, question: bytes, size: int, least: int, usual_s: float) -> Iterator[BatchCall]:
        """What a batch of a doubled size takes by itself, and beside others.

        Requests of the largest size, sent at once, cannot meet in one batch; smaller ones are a
        little apart, where that is little. ``usual_s``: what it took until each instance had
        answered.
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
        ask = partial(_ask, self._future, question, instances, apart_s, self._patience_s)
        return min(ask() for _ in range(TWICE))


def batch_sizes(config: Any, least: int) -> list[int]:
    """Sizes that the dynamic batcher of a ``ModelConfig`` may form, the doubled ones first.

    Of a model that takes sequences none: one request cannot be several of these.

    ``least``: Inferences in one request of the workload.
    """
    if config.HasField("sequence_batching"):
        return []
    if config.response_cache.enable:
        return []  # what is asked here would be in the cache
    most = config.max_batch_size // least if config.HasField("dynamic_batching") else 1
    doubled = [2**power for power in range(most.bit_length())] or [1]
    others = {*range(1, min(EACH, most) + 1), max(most, 1)} - {*doubled}
    return [count * least for count in (*doubled, *sorted(others))]


def _ask(
    future: Callable[..., Any], question: bytes, instances: int, apart_s: float, patience_s: float
) -> float:
    """How long it takes until each instance has answered once."""
    begin, calls = time.monotonic(), list[Any]()
    while len(calls) < instances:
        if calls:
            time.sleep(apart_s)
        calls.append(future(question, timeout=patience_s))
    for call in calls:
        call.exception()
    return time.monotonic() - begin


def _steady(took_s: Sequence[float]) -> bool:
    """Whether the last two took about the same."""
    fast, slow = sorted(took_s[-2:]) if len(took_s) > 1 else (0.0, float("inf"))
    return slow <= max(2.0 * fast, fast + ALIKE_S)


def listed(sizes: Collection[int]) -> str:
    first, last = min(sizes), max(sizes)
    if len(sizes) == 1:
        return f"batch size {first}"
    if len(sizes) == last - first + 1 > 2:
        return f"batch sizes {first} to {last}"
    return f"batch sizes {', '.join(map(str, sorted(sizes)))}"
