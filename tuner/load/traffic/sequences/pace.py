"""Sequences of requests: when which request of which sequence is due, how it is marked, its order.

So many sequences run at once: a line of them is never idle, and each begins when the one before it
has sent its last request. Users do not speak in step, so each line has a clock of its own.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from tuner.load.traffic.reply import outputs_in
from tuner.modelconfig.schema import ModelConfig, enum_name

#: Arrival times in seconds from the start of the load, ascending.
_Times = npt.NDArray[np.float64]
#: The number of the sequence of each request, from 0.
Numbers = npt.NDArray[np.int64]
#: The seed's stream for sequences; see `traffic.turns` for another.
_SEQUENCES = 4
#: Ids stay within 31 bits: a model may take them as TYPE_INT32.
_MOST_FIRST_ID = 1 << 30


class SequenceIds(Enum):
    """How a model wants to be told which sequence a request belongs to."""

    NUMBERS = "numbers"
    TEXTS = "texts"


@dataclass(frozen=True)
class SequencePace:
    """What all sequences have in common.

    Attributes:
        lengths: Requests of a sequence, fewest and most; drawn evenly. None where every sequence
            comes from a file.
        interval_s: From one request of a sequence to the next.
        count_output: See `SequenceSettings`.
    """

    lengths: tuple[int, int] | None
    interval_s: float
    count_output: str = ""

    def at_once(self, rate_per_s: float) -> float:
        """Sequences that run at once to make so many requests a second."""
        return round(rate_per_s * self.interval_s, 6)


@dataclass(frozen=True)
class SequencedTimes:
    """The requests of sequences, ascending.

    Attributes:
        due_s: When each is due.
        numbers: The sequence of each, from 0.
        entries: What each carries, as its place in the file of sequences; None without a file.
    """

    due_s: _Times
    numbers: Numbers
    entries: Numbers | None = None


def ids_for(configs: Iterable[ModelConfig]) -> SequenceIds | None:
    """How requests name their sequence to a model, or to its steps; None where none takes any."""
    batchers = [c.sequence_batching for c in configs if c.HasField("sequence_batching")]
    if not batchers:
        return None
    controls = [c for b in batchers for t in b.control_input for c in t.control]
    named = [c for c in controls if c.Kind.Name(c.kind) == "CONTROL_SEQUENCE_CORRID"]
    texts = any(enum_name(c, "data_type") == "TYPE_STRING" for c in named)
    return SequenceIds.TEXTS if texts else SequenceIds.NUMBERS


def sequence_arrivals(
    rates_per_s: Sequence[float],
    spans_s: Sequence[float],
    seed: int,
    pace: SequencePace,
    played: Sequence[int] = (),
) -> SequencedTimes:
    """When requests are due, and the sequence of each.

    A load begins in the middle of its sequences, and ends there: these are shorter, and each
    begins with its first request. A line that is there for a part of the time only leaves out whole
    sequences. The lines of a seed are the same at each rate.

    Args:
        rates_per_s: Requests per second, in each span.
        spans_s: Lengths of consecutive spans of the run.
        played: The length of each sequence of a file, of which any is as likely as another; else
            lengths are drawn.
    """
    lines_at_once = [pace.at_once(rate) for rate in rates_per_s]
    count = max(math.ceil(max(lines_at_once)), 1)
    lines = [_line(k, lines_at_once, spans_s, seed, pace, played) for k in range(count)]
    due_s = np.concatenate([line.due_s for line in lines])
    if not due_s.size:
        none = np.zeros(1, np.int64)
        return SequencedTimes(np.array([sum(spans_s) / 2.0]), none, none if played else None)
    most = max(int(line.numbers.max(initial=0)) for line in lines) + 1
    numbers = np.concatenate([k * most + line.numbers for k, line in enumerate(lines)])
    by_time = np.argsort(due_s, kind="stable")
    numbers = np.unique(numbers[by_time], return_inverse=True)[1].astype(np.int64)
    entries = [line.entries for line in lines if line.entries is not None]
    carried = np.concatenate(entries)[by_time] if entries else None
    return SequencedTimes(due_s[by_time], numbers, carried)


def _line(
    place: int,
    lines_at_once: Sequence[float],
    spans_s: Sequence[float],
    seed: int,
    pace: SequencePace,
    played: Sequence[int],
) -> SequencedTimes:
    """The requests of one line, with the number in it of the sequence of each."""
    rng = np.random.default_rng((seed, _SEQUENCES, place))
    offset_s, share_offset = rng.uniform(0.0, pace.interval_s), rng.random()
    due_s = np.arange(offset_s, sum(spans_s), pace.interval_s)
    low, high = (min(played), max(played)) if played else pace.lengths or (1, 1)
    into = int(rng.integers(high))  # the first sequence began before the load
    count = due_s.size // low + into + 2
    which = rng.integers(len(played), size=count) if played else None
    lengths = rng.integers(low, high + 1, size=count) if which is None else np.array(played)[which]
    number = np.repeat(np.arange(lengths.size), lengths)[into : into + due_s.size]
    span = np.searchsorted(np.cumsum(spans_s)[:-1], due_s, side="right")
    share = np.clip(np.array(lines_at_once) - place, 0.0, 1.0)[span]
    there = np.floor((number + 1) * share + share_offset) > np.floor(number * share + share_offset)
    if which is None:
        return SequencedTimes(due_s[there], number[there])
    begins = np.searchsorted(number, number)  # where its sequence begins in this line
    first = np.cumsum([0, *played])[which[number]]
    entries = first + np.arange(number.size) - begins
    return SequencedTimes(due_s[there], number[there], entries[there])


def last_of_each(sequences: Numbers) -> npt.NDArray[np.bool_]:
    """Which requests are the last ones of their sequences, of requests in the order they are due.

    ``sequences``: the number of each one's sequence.
    """
    last = np.zeros(sequences.size, dtype=bool)
    from_the_end = np.unique(sequences[::-1], return_index=True)[1]
    last[sequences.size - 1 - from_the_end] = True
    return last


def first_id() -> int:
    """An id from which on none is in use: drawn, so that other clients hardly have the same."""
    return 1 + secrets.randbelow(_MOST_FIRST_ID)


def marks(number: int, ids: SequenceIds, *, start: bool, end: bool) -> bytes:
    """What makes a serialised request, before or after these bytes, one of a sequence."""
    from tritonclient.grpc import service_pb2

    request = service_pb2.ModelInferRequest()
    if ids is SequenceIds.TEXTS:
        request.parameters["sequence_id"].string_param = f"{number:0128d}"
    else:
        request.parameters["sequence_id"].int64_param = number
    request.parameters["sequence_start"].bool_param = start
    request.parameters["sequence_end"].bool_param = end
    return bytes(request.SerializeToString())


def counted_in(answer: bytes, output: str) -> float | None:
    """The number that a model answered in an output of one value; None where it has none."""
    try:
        values = outputs_in(answer).get(output)
        return None if values is None or values.size != 1 else float(values.flat[0])
    except ValueError:  # not readable, or a text
        return None


def out_of_order(counted: float | None, place: int, output: str) -> str:
    """What is wrong with the answer to a request, by the model's own count; empty where nothing is.

    ``place``: in its sequence, from 1.
    """
    if counted == place:
        return ""
    if counted is None:
        return f"output {output} is not one number, so the order is not known"
    return f"out of order: request {place} of a sequence was the model's number {counted:g}"
