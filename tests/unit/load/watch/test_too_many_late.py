"""A window in which too many answers come late ends then; the client knows each latency."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from builders.measurements import latency_slo

from tuner.load.watch.early_end import TooManyLate, check_decided, decided_us, is_lost, truncate
from tuner.measurement.window import Window

Times = npt.NDArray[np.float64]

BOUND = latency_slo(share=0.99, within_s=0.100)
WINDOW = Window(duration_s=14.0, warmup_s=0.5, deadline_s=60.0, tail_s=0.2, bounds=(BOUND,))
#: A request is known to be late this long after it was due.
KNOWN_AFTER_S = BOUND.within_s + 0.001
RATE = 25.0  # of the window's 350 requests 3 may be late
MOMENTS_S = np.arange(0.0, WINDOW.total_s, 0.002)


def drawn(late_share: float, seed: int) -> tuple[Times, Times]:
    """When requests are due, and what each takes: so large a share of them more than the bound."""
    rng = np.random.default_rng(seed)
    due_s = np.sort(rng.uniform(0.0, WINDOW.total_s, round(RATE * WINDOW.total_s)))
    late = rng.random(due_s.size) < late_share
    return due_s, np.where(
        late, rng.uniform(0.102, 0.9, due_s.size), rng.uniform(0.01, 0.1, due_s.size)
    )


def lost_at_s(due_s: Times, takes_s: Times, window: Window = WINDOW) -> float | None:
    """The first moment at which the decision is that the SLO can no longer be met."""
    for at_s in MOMENTS_S:
        answered_s = np.where(due_s + takes_s <= at_s, due_s + takes_s, np.inf)
        if is_lost({"": decided_us(due_s, answered_s, window, at_s)}, {"": due_s}, window):
            return float(at_s)
    return None


def late_ones_s(due_s: Times, takes_s: Times) -> Times:
    """When the window's late requests were due."""
    start_s, end_s = WINDOW.span_s
    return due_s[(due_s >= start_s) & (due_s < end_s) & (takes_s > BOUND.within_s)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("late_share", [0.0, 0.004, 0.01, 0.02, 0.1, 0.4, 1.0])
def test_a_window_is_lost_at_the_first_moment_that_is_certain_and_one_that_passes_never(
    late_share: float, seed: int
) -> None:
    due_s, takes_s = drawn(late_share, seed)
    start_s, end_s = WINDOW.span_s
    planned = int(((due_s >= start_s) & (due_s < end_s)).sum())
    late_s, allowed = late_ones_s(due_s, takes_s), int((1.0 - BOUND.share) * planned)
    at_s = lost_at_s(due_s, takes_s)
    if late_s.size <= allowed:
        assert at_s is None
    else:
        assert at_s == pytest.approx(late_s[allowed] + KNOWN_AFTER_S, abs=0.0021)


def test_a_request_without_an_answer_is_late_once_its_time_is_over() -> None:
    due_s, takes_s = drawn(0.0, seed=1)
    never_s = np.where(due_s > 3.0, np.inf, takes_s)
    at_s = lost_at_s(due_s, never_s)
    assert at_s == pytest.approx(late_ones_s(due_s, never_s)[3] + KNOWN_AFTER_S, abs=0.0021)


def test_late_requests_of_the_warm_up_and_refused_ones_decide_nothing() -> None:
    due_s, takes_s = drawn(0.0, seed=1)
    assert lost_at_s(due_s, np.where(due_s < WINDOW.warmup_s, 0.9, takes_s)) is None
    refused_s = np.full(due_s.size, np.nan)
    assert decided_us(due_s, refused_s, WINDOW, WINDOW.total_s).size == 0


def test_late_requests_are_counted_for_each_bound_after_the_longest_wait() -> None:
    due_s, takes_s = drawn(0.4, seed=1)
    lenient = latency_slo(share=0.5, within_s=0.300)
    both = replace(WINDOW, bounds=(BOUND, lenient))
    at_s = lost_at_s(due_s, takes_s, both)
    expected_s = late_ones_s(due_s, takes_s)[3] + lenient.within_s + 0.001
    assert at_s == pytest.approx(expected_s, abs=0.0021)
    assert lost_at_s(due_s, takes_s, replace(WINDOW, bounds=(lenient,))) is None


class EmulatedClient:
    """Shows what each request took once it is answered; the clock is set by hand."""

    def __init__(self, due_s: Mapping[str, Times], takes_s: Mapping[str, Times]) -> None:
        self.due_s = due_s
        self.takes_s = takes_s
        self.now = 100.0

    def progress(self) -> tuple[float, Mapping[str, Times]] | None:
        at_s = self.now - 100.3
        if at_s < 0.0:
            return None
        answered_s = {name: due_s + self.takes_s[name] for name, due_s in self.due_s.items()}
        return at_s, {
            n: np.where(done_s <= at_s, done_s, np.inf) for n, done_s in answered_s.items()
        }

    def ended_at_s(self, window: Window) -> float | None:
        late = TooManyLate(self.due_s, window, self.progress, clock=lambda: self.now)
        while self.now < 100.3 + window.total_s:
            if late():
                return self.now - 100.3
            self.now += 0.01
        return None


def test_a_long_window_with_four_of_ten_late_ends_once_it_holds_twenty_answers() -> None:
    """Fourteen seconds were measured to their end."""
    due_s, takes_s = drawn(0.4, seed=1)
    end_s = EmulatedClient({"": due_s}, {"": takes_s}).ended_at_s(WINDOW)
    assert end_s is not None
    assert end_s < 2.5
    left = truncate(WINDOW, 0, round(end_s * 1e9))
    assert 0.8 < left.duration_s < 2.0
    latencies_us = {"": np.sort(1e6 * takes_s[(due_s >= 0.5) & (due_s < left.span_s[1])])}
    check_decided(latencies_us, {"": due_s}, left, WINDOW)


def test_window_without_stalls_ends_once_twice_as_many_are_late() -> None:
    """What a stall of the machine made late is left out in the end."""
    due_s, takes_s = drawn(0.04, seed=1)
    allowed = 0.01 * ((due_s >= WINDOW.warmup_s) & (due_s < WINDOW.span_s[1])).sum()
    quiet_only = replace(WINDOW, quiet_only=True)
    plain_s, quiet_s = (
        EmulatedClient({"": due_s}, {"": takes_s}).ended_at_s(w) for w in (WINDOW, quiet_only)
    )
    assert plain_s is not None
    assert quiet_s is not None
    late_s = late_ones_s(due_s, takes_s)
    assert (late_s < plain_s).sum() < 2.0 * allowed < (late_s < quiet_s).sum()


def test_load_that_passes_or_fails_only_at_the_end_is_measured_completely() -> None:
    due_s, takes_s = drawn(0.0, seed=1)
    assert EmulatedClient({"": due_s}, {"": takes_s}).ended_at_s(WINDOW) is None
    more_s = np.append(due_s, np.linspace(14.42, 14.49, 20))
    last_s = np.append(takes_s, np.full(20, 0.5))
    assert late_ones_s(more_s, last_s).size == 20
    assert EmulatedClient({"": more_s}, {"": last_s}).ended_at_s(WINDOW) is None


def test_stream_that_misses_its_slo_ends_the_load() -> None:
    (fast_s, takes_s), (slow_s, slowly_s) = drawn(0.0, seed=1), drawn(0.4, seed=2)
    due_s = {"fast": fast_s, "slow": slow_s, "": np.concatenate([fast_s, slow_s])}
    taken_s = {"fast": takes_s, "slow": slowly_s, "": np.concatenate([takes_s, slowly_s])}
    window = replace(WINDOW, bounds=(replace(BOUND, stream="slow"),))
    end_s = EmulatedClient(due_s, taken_s).ended_at_s(window)
    assert end_s is not None
    assert end_s < 2.5
    others = replace(WINDOW, bounds=(replace(BOUND, stream="fast"),))
    assert EmulatedClient(due_s, taken_s).ended_at_s(others) is None
