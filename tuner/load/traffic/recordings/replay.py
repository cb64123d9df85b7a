"""Which requests of a recording a measurement replays, and when.

A measurement that is shorter than the recording replays parts of it, called stretches: the busiest
one, so that a burst is in every window, and others from calm to busy, each standing for an equal
part of the recording's time. The requests before the first stretch come before the window, and
those after the last stretch follow the window. A measurement that is longer than the recording
repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.load.traffic.arrivals import Times
from tuner.load.traffic.recordings.lines import (
    RecordedStream,
    Recording,
    read_recording,
    streams_of,
)
from tuner.load.traffic.repeats import Order
from tuner.spec.arrivals import ArrivalsSpec, RecordingArrivals

#: Shortest stretch, long enough for a burst of seconds and its aftermath, and the largest number of
#: stretches in a window.
LEAST_STRETCH_S, MOST_STRETCHES = 3.0, 8
#: Number of evenly spaced places of a long recording where a stretch may start.
MOST_PLACES = 1 << 20
#: Share of a stretch in its busiest part; as much time precedes that part and follows it.
LEAD = 1 / 3
#: Among this many consecutive requests, the same share is left out or sent once more.
BLOCK = 20
_REPLAY = 4  # the seed's stream for stretches; see `traffic.repeats` and `turns` for others


@dataclass(frozen=True)
class Stretch:
    """A part of a recording; it may extend beyond either end, where the recording wraps around."""

    start_s: float
    length_s: float


@dataclass(frozen=True)
class Replay:
    """Requests on the clock of a measurement, ascending, with their numbers in the recording."""

    due_s: Times
    lines: Order


@dataclass(frozen=True)
class RecordedTraffic:
    """A recording as the source of a run's requests.

    Attributes:
        order: Index of each request's stream among the run's.
        keeps_pace: A level changes the speed; else it changes the number of requests at a time.
    """

    recording: Recording
    order: Order
    keeps_pace: bool = False

    def of(self, stream: int) -> RecordedStream:
        return RecordedStream(self.recording, np.flatnonzero(self.order == stream))

    @property
    def peak(self) -> float:
        """The rate of its busiest second over its mean rate."""
        return busiest_per_s(self.recording) / self.recording.rate_per_s

    def replay(self, rate_per_s: float, spans_s: Sequence[float], seed: int) -> Replay:
        """The requests of a run whose window has this mean rate.

        With ``keeps_pace``, the whole recording would have that mean rate.

        Args:
            rate_per_s: Mean requests per second.
            spans_s: Lengths of warm-up, window and tail.
            seed: Seed of the choice of stretches.
        """
        recording, recorded_per_s = self.recording, self.recording.rate_per_s
        pace = rate_per_s / recorded_per_s if self.keeps_pace else 1.0
        before_s, window_s, after_s = (pace * span_s for span_s in spans_s)
        parts = stretches(recording.due_s, recording.length_s, (before_s, window_s, after_s), seed)
        replayed = cut(recording.due_s, recording.length_s, parts)
        if self.keeps_pace:
            return Replay(replayed.due_s / pace, replayed.lines)
        inside = (replayed.due_s >= before_s) & (replayed.due_s < before_s + window_s)
        return scaled(replayed, spans_s, rate_per_s * window_s / inside.sum(), self.order, seed)


def recorded_traffic(arrivals: ArrivalsSpec, models: Mapping[str, str]) -> RecordedTraffic | None:
    """The recording that a spec names, for streams with these models; None if it names none.

    Raises:
        SpecError: The recording cannot be read, or its streams are others.
    """
    if not isinstance(arrivals, RecordingArrivals):
        return None
    recording = read_recording(arrivals.file)
    return RecordedTraffic(recording, streams_of(recording, models), arrivals.pace is not None)


def busiest_per_s(recording: Recording) -> int:
    """Number of requests in its busiest second."""
    due_s = recording.due_s
    return int((np.searchsorted(due_s, due_s + 1.0) - np.arange(due_s.size)).max())


def stretches(
    due_s: Times, length_s: float, spans_s: tuple[float, float, float], seed: int
) -> list[Stretch]:
    """The stretches that fill a window, with those before and after it.

    The busiest stretch comes in the middle, so that its queue is worked off within the window. The
    others are around it in the recorded order.

    Args:
        due_s: When each request was due.
        length_s: Time after which the recording starts over.
        spans_s: Lengths of warm-up, window and tail.
        seed: Seed of the choice.
    """
    before_s, window_s, after_s = spans_s
    if window_s >= length_s:
        return [Stretch(-before_s, before_s + window_s + after_s)]
    count = min(max(int(window_s / LEAST_STRETCH_S), 1), MOST_STRETCHES)
    each_s = window_s / count
    twice_s = np.concatenate([due_s, due_s + length_s])
    lead_s = each_s * LEAD
    busiest_s = float(due_s[np.argmax(_counts(twice_s, due_s, lead_s))]) - lead_s
    places = min(int(length_s / each_s), MOST_PLACES)
    apart_s = each_s if places < MOST_PLACES else length_s / places
    starts_s = (busiest_s + apart_s * np.arange(places)) % length_s
    busy = _counts(twice_s, starts_s, each_s)
    busy[0] += due_s.size  # the busiest of all, also among equals
    rng = np.random.default_rng((seed, _REPLAY))
    *calmer, last = np.array_split(np.argsort(busy, kind="stable"), count)
    chosen = sorted(float(starts_s[rng.choice(part)]) for part in calmer)
    chosen.insert(len(chosen) // 2, float(starts_s[last[-1]]))
    chosen_stretches = [Stretch(start_s, each_s) for start_s in chosen]
    chosen_stretches[0] = Stretch(
        chosen_stretches[0].start_s - before_s, chosen_stretches[0].length_s + before_s
    )
    chosen_stretches[-1] = Stretch(
        chosen_stretches[-1].start_s, chosen_stretches[-1].length_s + after_s
    )
    return chosen_stretches


def _counts(twice_s: Times, starts_s: Times, span_s: float) -> Order:
    """Number of requests within ``span_s`` after each start."""
    ends = np.searchsorted(twice_s, starts_s + span_s, side="left")
    counts: Order = ends - np.searchsorted(twice_s, starts_s, side="left")
    return counts


def cut(due_s: Times, length_s: float, parts: Sequence[Stretch]) -> Replay:
    """The requests of these stretches, one stretch after the other on one clock."""
    times, lines, at_s = [], [], 0.0
    for part in parts:
        end_s = part.start_s + part.length_s
        for lap in range(int(part.start_s // length_s), int(end_s // length_s) + 1):
            low, high = (edge - lap * length_s for edge in (part.start_s, end_s))
            first, last = np.searchsorted(due_s, [low, high], side="left")
            times.append(due_s[first:last] - low + at_s)
            lines.append(np.arange(first, last))
        at_s += part.length_s
    return Replay(np.concatenate(times), np.concatenate(lines))


def scaled(
    replay: Replay, spans_s: Sequence[float], factor: float, order: Order, seed: int
) -> Replay:
    """Multiplies the number of requests in each span and stream, with the same pattern in time.

    Copies of a request are spread over the gap to the stream's next one. Chance decides which of
    several neighbors gets an extra copy: every second one could belong to the same client.
    """
    ends_s, times, lines = np.cumsum(spans_s), [], []
    for stream in np.unique(order):
        of_stream = order[replay.lines] == stream
        due_s = replay.due_s[of_stream]
        counts = np.bincount(np.searchsorted(ends_s, due_s, side="right")).tolist()
        rng = np.random.default_rng((seed, _REPLAY, int(stream)))
        more = [_once_more(count, factor % 1.0, rng) for count in counts]
        copies = int(factor) + np.concatenate([np.zeros(0, np.int64), *more])
        gaps_s = np.diff(due_s, append=ends_s[-1])
        which = np.repeat(np.arange(due_s.size), copies)
        number = np.arange(which.size) - np.repeat(np.cumsum(copies) - copies, copies)
        times.append(due_s[which] + number * gaps_s[which] / np.maximum(copies[which], 1))
        lines.append(replay.lines[of_stream][which])
    every_s, every = np.concatenate(times), np.concatenate(lines)
    in_order = np.lexsort((every, every_s))
    return Replay(every_s[in_order], every[in_order])


def _once_more(count: int, share: float, rng: np.random.Generator) -> Order:
    """Which requests get one more copy: this share of each block, as far as whole numbers allow."""
    edges = np.minimum(np.arange(0, count + BLOCK, BLOCK), count)
    quotas = np.diff(np.rint(share * edges)).astype(np.int64)
    keys = np.full(quotas.size * BLOCK, np.inf)
    keys[:count] = rng.random(count)
    ranks = keys.reshape(-1, BLOCK).argsort(axis=1).argsort(axis=1)
    more: Order = (ranks < quotas[:, None]).ravel()[:count].astype(np.int64)
    return more
