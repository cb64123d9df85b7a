"""The schedule of sequences: when each request is due, its marks, and a check of the order.

A fixed number of sequences is in progress. Each belongs to a line, which is never idle: a sequence
starts when the line's previous one has sent its last request. Users are not synchronized, so each
line has its own clock.
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
from tuner.modelconfig.schema import ModelConfig, enum_name, takes_sequences

#: Due times in seconds from the start of the load, ascending.
_Times = npt.NDArray[np.float64]
#: Number of each request's sequence, from 0.
Numbers = npt.NDArray[np.int64]
#: The seed's stream for sequences; see `traffic.turns` for another.
_SEQUENCES = 4
#: First ids stay small enough for ids within 31 bits: a model may take them as TYPE_INT32.
_MOST_FIRST_ID = 1 << 30


class SequenceIds(Enum):
    """The type of id with which a request names its sequence."""

    NUMBERS = "numbers"
    TEXTS = "texts"


@dataclass(frozen=True)
class SequencePace:
    """Properties that all sequences share.

    Attributes:
        lengths: Fewest and most requests of a sequence; uniform. None if every sequence comes from
            a file.
        interval_s: Time between two requests of a sequence.
        count_output: See `SequenceSettings`.
    """

    lengths: tuple[int, int] | None
    interval_s: float
    count_output: str = ""

    def at_once(self, rate_per_s: float) -> float:
        """Number of sequences in progress that together send this many requests per second."""
        return round(rate_per_s * self.interval_s, 6)


@dataclass(frozen=True)
class SequencedTimes:
    """The requests of sequences, ascending by due time.

    Attributes:
        due_s: When each request is due.
        numbers: Number of each request's sequence, from 0.
        entries: Index of each request in the file of sequences; None without a file.
    """

    due_s: _Times
    numbers: Numbers
    entries: Numbers | None = None


def ids_for(configs: Iterable[ModelConfig]) -> SequenceIds | None:
    """The type of id for a model, or for its steps; None if none takes sequences."""
    batchers = [c.sequence_batching for c in configs if takes_sequences(c)]
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

    A load starts and ends in the middle of sequences; these are shorter, and each starts with its
    first request. A line that is needed for a part of the time leaves out whole sequences only. A
    seed gives the same lines at every rate.

    Args:
        rates_per_s: Requests per second in each span.
        spans_s: Lengths of consecutive spans of the run.
        seed: Seed of the draw.
        played: Length of each sequence in a file, all equally likely; empty: lengths are drawn.
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
    """The requests of one line; ``numbers`` count the line's sequences."""
    rng = np.random.default_rng((seed, _SEQUENCES, place))
    offset_s, share_offset = rng.uniform(0.0, pace.interval_s), rng.random()
    due_s = np.arange(offset_s, sum(spans_s), pace.interval_s)
    low, high = (min(played), max(played)) if played else pace.lengths or (1, 1)
    into = int(rng.integers(high))  # the first sequence started before the load
    count = due_s.size // low + into + 2
    which = rng.integers(len(played), size=count) if played else None
    lengths = rng.integers(low, high + 1, size=count) if which is None else np.array(played)[which]
    number = np.repeat(np.arange(lengths.size), lengths)[into : into + due_s.size]
    span = np.searchsorted(np.cumsum(spans_s)[:-1], due_s, side="right")
    share = np.clip(np.array(lines_at_once) - place, 0.0, 1.0)[span]
    there = np.floor((number + 1) * share + share_offset) > np.floor(number * share + share_offset)
    if which is None:
        return SequencedTimes(due_s[there], number[there])
    begins = np.searchsorted(number, number)  # start of each request's sequence in this line
    first = np.cumsum([0, *played])[which[number]]
    entries = first + np.arange(number.size) - begins
    return SequencedTimes(due_s[there], number[there], entries[there])


def last_of_each(sequences: Numbers) -> npt.NDArray[np.bool_]:
    """A mask of the last request of each sequence.

    ``sequences``: the sequence of each request, in the order in which they are due.
    """
    last = np.zeros(sequences.size, dtype=bool)
    from_the_end = np.unique(sequences[::-1], return_index=True)[1]
    last[sequences.size - 1 - from_the_end] = True
    return last


def first_id() -> int:
    """A random first id: sequences of other clients are unlikely to use the same ids."""
    return 1 + secrets.randbelow(_MOST_FIRST_ID)


def marks(number: int, ids: SequenceIds, *, start: bool, end: bool) -> bytes:
    """Bytes that add a sequence's id and flags to a serialized request, before or after it."""
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
    """The number in an output of one value; None if the output has no such number."""
    try:
        values = outputs_in(answer).get(output)
        return None if values is None or values.size != 1 else float(values.flat[0])
    except ValueError:  # unreadable, or text
        return None


def out_of_order(counted: float | None, place: int, output: str) -> str:
    """What is wrong with an answer by the model's own count of requests; empty if nothing is.

    Args:
        counted: The model's count.
        place: Place of the request in its sequence, from 1.
        output: Name of the output with the count.
    """
    if counted == place:
        return ""
    if counted is None:
        return f"output {output} is not one number, so the order is unknown"
    return f"out of order: the model counted request {place} of a sequence as number {counted:g}"
