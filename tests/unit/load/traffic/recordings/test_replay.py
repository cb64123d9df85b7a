"""What a measurement replays of a recording: its own times, its bursts, and as many as asked."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tuner.load.traffic.arrivals import Times
from tuner.load.traffic.recordings.lines import Label, Recording
from tuner.load.traffic.recordings.replay import (
    BLOCK,
    LEAD,
    RecordedTraffic,
    Replay,
    busiest_per_s,
    cut,
    scaled,
    stretches,
)


def recording(due_s: Times) -> Recording:
    count = due_s.size
    same = np.zeros(count, np.int64)
    return Recording(
        Path("r"), due_s, np.arange(count), (Label(),), same, ((),), same, same, ("",), same
    )


def traffic(due_s: Times, streams: int = 1, *, keeps_pace: bool = False) -> RecordedTraffic:
    return RecordedTraffic(recording(due_s), np.arange(due_s.size) % streams, keeps_pace)


#: Microseconds between neighbours, many of them close together.
GAPS = st.lists(st.sampled_from([0, 1, 500, 20_000, 300_000, 2_000_000]), min_size=2, max_size=200)
SEEDS = st.integers(0, 2**31)


def times_of(gaps_us: list[int]) -> Times:
    times: Times = np.concatenate([[0.0], np.cumsum(gaps_us) / 1e6])
    return times


@given(GAPS, st.floats(0.1, 60.0), st.floats(0.0, 5.0), st.floats(0.0, 5.0), SEEDS)
@example([0, 0, 300_000, 300_000, 2_000_000], 3.5, 0.0, 0.0, 0)
def test_a_window_is_filled_and_has_the_busiest_stretch_of_its_recording(
    gaps_us: list[int], window_s: float, before_s: float, after_s: float, seed: int
) -> None:
    due_s = times_of(gaps_us)
    assume(due_s[-1] >= 1.0)
    lines = recording(due_s)
    parts = stretches(due_s, lines.length_s, (before_s, window_s, after_s), seed)
    assert sum(part.length_s for part in parts) == pytest.approx(before_s + window_s + after_s)
    assert parts == stretches(due_s, lines.length_s, (before_s, window_s, after_s), seed)
    replay = cut(due_s, lines.length_s, parts)
    assert (np.diff(replay.due_s) >= -1e-6).all()
    each_s = min(LEAD * window_s / len(parts), lines.length_s)
    # A window as long as the recording begins with it, and may end before its second lap does.
    laps = (0.0,) if window_s >= lines.length_s else (0.0, lines.length_s)
    laps_s = np.concatenate([due_s + lap_s for lap_s in laps])
    most = max(int(((laps_s >= t) & (laps_s < t + each_s - 1e-6)).sum()) for t in due_s)
    inside = replay.due_s[(replay.due_s >= before_s - 1e-6) & (replay.due_s < before_s + window_s)]
    counts = np.searchsorted(inside, inside + each_s + 1e-6) - np.arange(inside.size)
    assert counts.max() >= most


@given(GAPS, st.floats(0.1, 60.0), SEEDS)
def test_neighbours_in_a_stretch_are_as_far_apart_as_they_were(
    gaps_us: list[int], window_s: float, seed: int
) -> None:
    due_s = times_of(gaps_us)
    assume(due_s[-1] >= 1.0)
    original = recording(due_s)
    parts = stretches(due_s, original.length_s, (0.5, window_s, 0.5), seed)
    replay = cut(due_s, original.length_s, parts)
    at_s = 0.0
    for part in parts:
        inside = (replay.due_s >= at_s) & (replay.due_s < at_s + part.length_s)
        lines, kept_s = replay.lines[inside], replay.due_s[inside]
        laps = np.concatenate([[0], np.cumsum(np.diff(lines) < 0)]) if lines.size else lines
        recorded_s = due_s[lines] + laps * original.length_s
        assert np.diff(kept_s) == pytest.approx(np.diff(recorded_s), abs=1e-6)
        at_s += part.length_s


def test_a_recording_that_fits_is_replayed_from_its_start_and_goes_round() -> None:
    due_s = np.array([0.0, 1.0, 1.5, 3.0])
    replay = traffic(due_s, keeps_pace=True).replay(1.0, (1.0, 8.0, 0.0), seed=3)
    assert replay.due_s.tolist() == [0.0, 1.0, 2.0, 2.5, 4.0, 5.0, 6.0, 6.5, 8.0]
    assert replay.lines.tolist() == [3, 0, 1, 2, 3, 0, 1, 2, 3]


def burst(calm_per_s: float = 100.0, times: float = 5.0) -> Times:
    """Ten minutes, with a burst of two seconds from the second 400 on."""
    rng = np.random.default_rng(1)
    calm = rng.uniform(0.0, 600.0, round(600 * calm_per_s))
    more = rng.uniform(400.0, 402.0, round(2 * (times - 1.0) * calm_per_s))
    due_s = np.sort(np.concatenate([calm, more]))
    return due_s - due_s[0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("window_s", [3.0, 10.0, 30.0, 120.0, 600.0])
@pytest.mark.parametrize("keeps_pace", [True, False])
def test_a_burst_is_in_every_window_as_high_and_as_long_as_it_was(
    window_s: float, seed: int, *, keeps_pace: bool
) -> None:
    recorded = traffic(burst(), keeps_pace=keeps_pace)
    level = recorded.recording.rate_per_s
    replay = recorded.replay(level, (1.0, window_s, 2.0), seed)
    inside = replay.due_s[(replay.due_s >= 1.0) & (replay.due_s < 1.0 + window_s)]
    in_two_s = (np.searchsorted(inside, inside + 2.0) - np.arange(inside.size)).max()
    expected = (
        1000 if keeps_pace else 1000 * level * window_s / recorded_count(recorded, window_s, seed)
    )
    assert in_two_s == pytest.approx(expected, rel=0.08)


def recorded_count(recorded: RecordedTraffic, window_s: float, seed: int) -> int:
    """How many requests the stretches of a window have as they were recorded."""
    paced = RecordedTraffic(recorded.recording, recorded.order, keeps_pace=True)
    due_s = paced.replay(recorded.recording.rate_per_s, (1.0, window_s, 2.0), seed).due_s
    return int(((due_s >= 1.0) & (due_s < 1.0 + window_s)).sum())


def test_a_window_has_calm_and_busy_times_in_their_shares() -> None:
    """A day in ten minutes: calm at first, then busier and busier."""
    due_s = 600.0 * np.sqrt(np.linspace(0.0, 1.0, 60_000))
    original = recording(due_s)
    for seed in range(5):
        parts = stretches(due_s, original.length_s, (0.0, 24.0, 0.0), seed)
        starts = sorted(part.start_s for part in parts)
        assert len(parts) == 8
        eighths = [int(start // 75.0) for start in starts]
        assert all(abs(k - eighth) <= 1 for k, eighth in enumerate(eighths))
        assert max(part.start_s for part in parts[:-1]) > parts[-1].start_s
        assert eighths[-1] == 7


def test_other_seeds_choose_other_stretches() -> None:
    due_s = burst()
    chosen = {
        tuple(stretches(due_s, recording(due_s).length_s, (0.0, 30.0, 0.0), seed))
        for seed in range(4)
    }
    assert len(chosen) == 4


@pytest.mark.parametrize("pace", [0.5, 1.0, 2.0])
def test_pace_divides_the_times_of_the_recording(pace: float) -> None:
    burst_traffic = traffic(burst(), keeps_pace=True)
    level = pace * burst_traffic.recording.rate_per_s
    replay = burst_traffic.replay(level, (1.0, 600.0 / pace, 0.0), seed=1)
    inside = replay.due_s >= 1.0
    recorded = burst_traffic.recording.due_s[replay.lines[inside]][:1000]
    assert replay.due_s[inside][:1000] - 1.0 == pytest.approx(recorded / pace, abs=1e-9)


@given(GAPS, st.floats(0.1, 400.0), st.integers(1, 3), SEEDS)
def test_a_window_has_exactly_as_many_requests_as_its_level_says(
    gaps_us: list[int], level: float, streams: int, seed: int
) -> None:
    due_s = times_of(gaps_us)
    assume(due_s[-1] >= 1.0)
    recorded = traffic(due_s, streams)
    replay = recorded.replay(level, (1.0, 10.0, 2.0), seed)
    assert (np.diff(replay.due_s) >= 0.0).all()
    inside = ((replay.due_s >= 1.0) & (replay.due_s < 11.0)).sum()
    spread = 2 * streams * (1 + level * 10.0 / recorded_count_of(recorded, seed))
    assert abs(inside - 10.0 * level) <= spread + 1


def recorded_count_of(recorded: RecordedTraffic, seed: int) -> int:
    parts = stretches(recorded.recording.due_s, recorded.recording.length_s, (1.0, 10.0, 2.0), seed)
    due_s = cut(recorded.recording.due_s, recorded.recording.length_s, parts).due_s
    return max(int(((due_s >= 1.0) & (due_s < 11.0)).sum()), 1)


@given(GAPS, st.floats(0.01, 20.0), SEEDS)
def test_a_scaled_pattern_keeps_its_shape_in_time(
    gaps_us: list[int], factor: float, seed: int
) -> None:
    """Up to each recorded request come as many times the requests, but for a few of one block."""
    due_s = times_of(gaps_us)
    order = np.zeros(due_s.size, np.int64)
    total_s = float(due_s[-1]) + 1.0
    replay = scaled(Replay(due_s, np.arange(due_s.size)), (total_s,), factor, order, seed)
    assert replay.due_s.size == int(factor) * due_s.size + round(factor % 1.0 * due_s.size)
    for k, t in enumerate(due_s.tolist()):
        before = int((replay.due_s < t).sum())
        first = int(np.searchsorted(due_s, t))
        assert abs(before - factor * first) <= BLOCK + factor + 1, k
    counts = np.bincount(replay.lines, minlength=due_s.size)
    assert set(counts.tolist()) <= {int(factor), int(factor) + 1}


@given(GAPS, SEEDS)
def test_once_as_many_requests_are_the_recorded_ones(gaps_us: list[int], seed: int) -> None:
    due_s = times_of(gaps_us)
    order = np.arange(due_s.size) % 2
    spans_s = (0.5, float(due_s[-1]), 1.0)
    replay = scaled(Replay(due_s, np.arange(due_s.size)), spans_s, 1.0, order, seed)
    assert replay.due_s.tolist() == due_s.tolist()
    assert replay.lines.tolist() == list(range(due_s.size))


@pytest.mark.parametrize("factor", [0.5, 1.5, 2.5])
def test_requests_that_alternate_keep_their_shares(factor: float) -> None:
    """Every second one would be that of one client."""
    due_s = np.arange(2000) / 100.0
    replay = scaled(
        Replay(due_s, np.arange(2000)), (20.0,), factor, np.zeros(2000, np.int64), seed=1
    )
    assert (replay.lines % 2).mean() == pytest.approx(0.5, abs=0.03)


def test_streams_keep_their_shares_at_every_level() -> None:
    recorded = RecordedTraffic(recording(burst()), (np.arange(burst().size) % 10 < 3).astype(int))
    for level in (20.0, 150.0, 733.0):
        replay = recorded.replay(level, (1.0, 30.0, 2.0), seed=2)
        assert recorded.order[replay.lines].mean() == pytest.approx(0.3, abs=0.02)


def test_higher_level_replays_mostly_the_requests_of_a_lower_one() -> None:
    recorded = traffic(burst())
    low, high = (set(recorded.replay(level, (1.0, 30.0, 2.0), 1).lines) for level in (40.0, 50.0))
    assert len(low & high) > 0.95 * len(low)


def test_busiest_second_is_reported() -> None:
    assert busiest_per_s(recording(np.array([0.0, 1.0, 1.5, 1.9, 2.1, 4.0]))) == 3
    assert busiest_per_s(recording(np.arange(50) / 10.0)) == 10
    assert traffic(np.array([0.0, 0.5, 3.0])).peak == 2 / (3 / 4.5)


def test_a_month_with_few_requests_is_replayed_in_little_memory() -> None:
    due_s = np.array([0.0, 1e-3, 30 * 86_400.0])
    tracemalloc.start()
    try:
        parts = stretches(due_s, recording(due_s).length_s, (0.1, 0.4, 0.1), seed=1)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(part.length_s for part in parts) == pytest.approx(0.6)
    assert cut(due_s, recording(due_s).length_s, parts).due_s.size >= 1
    assert most_bytes < 100 << 20
