from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from builders.measurements import latency_slo

from tuner.errors import InterruptedRunError, LoadFailedError, ServerGoneError, UndecidedError
from tuner.load.validity import ended_early
from tuner.load.watch.early_end import (
    SloLost,
    check_answered,
    check_decided,
    truncate,
)
from tuner.measurement.window import EarlyEnd, Window
from tuner.reason import Reason, ReasonKind

BOUND = latency_slo(share=0.99, within_s=0.060)
WINDOW = Window(duration_s=3.0, warmup_s=0.5, deadline_s=30.0, tail_s=0.25, bounds=(BOUND,))
RATE = 1000.0
DUE = np.arange(0.0, WINDOW.total_s, 1.0 / RATE)
START_UP_S = 0.2


class EmulatedServer:
    """Answers up to a rate, as soon as the client has started; the clock is set by hand."""

    def __init__(self, capacity: float, before: int = 1000) -> None:
        self.capacity = capacity
        self.before = before
        self.now = 0.0

    def answered(self) -> int:
        loaded_s = max(self.now - START_UP_S, 0.0)
        return self.before + int(min(self.capacity, RATE) * loaded_s)


def ends_at(capacity: float, window: Window = WINDOW) -> float | None:
    """Seconds from the start of the load until it is given up; None when it never is."""
    server = EmulatedServer(capacity)
    slo_lost = SloLost({"": DUE}, window, server.answered, clock=lambda: server.now)
    while server.now < START_UP_S + window.total_s:
        if slo_lost():
            return server.now - START_UP_S
        server.now += 0.01
    return None


def test_an_overload_is_given_up_soon_after_it_is_decided() -> None:
    """At two thirds of the rate 333 requests more wait each second; 30 may be late."""
    end = ends_at(RATE / 1.5)
    assert end is not None
    assert WINDOW.warmup_s + 0.4 <= end < WINDOW.warmup_s + 0.8


def test_the_heavier_the_overload_the_sooner() -> None:
    ends = [ends_at(RATE / factor) for factor in (1.1, 1.5, 3.0)]
    assert None not in ends
    assert ends == sorted(ends, key=lambda end: -(end or 0.0))


def test_requests_waiting_since_the_warm_up_count_as_late() -> None:
    """After the warm-up 50 requests are behind, more than the window may have late."""
    end = ends_at(RATE * 0.9)
    assert end is not None
    assert end < WINDOW.warmup_s + 0.9


def test_few_answers_are_waited_for_since_their_rate_counts_too() -> None:
    ends = [ends_at(capacity) for capacity in (100.0, 10.0)]
    assert ends[0] == pytest.approx(WINDOW.warmup_s + 0.4 + BOUND.within_s, abs=0.1)
    assert ends[1] == pytest.approx(WINDOW.warmup_s + 2.0 + BOUND.within_s, abs=0.2)


@pytest.mark.parametrize(
    ("capacity", "window"),
    [
        (RATE * 2, WINDOW),
        (RATE * 0.99, WINDOW),  # a little late
        (RATE / 3, replace(WINDOW, bounds=())),
        (RATE / 3, replace(WINDOW, ends_early=EarlyEnd.NEVER)),
    ],
)
def test_load_that_may_still_pass_is_not_ended_early(capacity: float, window: Window) -> None:
    assert ends_at(capacity, window) is None


def test_a_server_that_does_not_tell_is_no_reason_to_stop() -> None:
    def gone() -> int:
        raise ServerGoneError("it crashed")

    assert not SloLost({"": DUE}, WINDOW, gone)()


def test_immediate_stop_interrupts_a_query_of_the_server() -> None:
    def stopped() -> int:
        raise InterruptedRunError("interrupted")

    with pytest.raises(InterruptedRunError):
        SloLost({"": DUE}, WINDOW, stopped)()


def test_a_window_is_cut_so_that_what_has_no_answer_by_the_stop_is_late() -> None:
    begun_ns = 10**18
    window = truncate(WINDOW, begun_ns, begun_ns + 1_700_000_000)
    assert window.duration_s == pytest.approx(1.2 - BOUND.within_s)
    patient = replace(WINDOW, bounds=(BOUND, latency_slo(share=0.5, within_s=0.2)))
    window = truncate(patient, begun_ns, begun_ns + 1_700_000_000)
    assert window.duration_s == pytest.approx(1.0)
    assert truncate(WINDOW, begun_ns, begun_ns + 9_000_000_000) == WINDOW


def test_a_load_that_was_stopped_before_anything_was_late_decides_nothing() -> None:
    with pytest.raises(UndecidedError):
        truncate(WINDOW, 10**18, 10**18 + 550_000_000)


def test_shortened_window_needs_more_late_requests_than_the_full_one_allows() -> None:
    """Of the 3000 requests planned 30 may be late, however few of them were sent."""
    shortened = replace(WINDOW, duration_s=1.0)

    def latencies_us(late: int) -> npt.NDArray[np.float64]:
        return np.sort(np.where(np.arange(1000) < late, 70_000.0, 20_000.0))

    check_decided({"": latencies_us(31)}, {"": DUE}, shortened, WINDOW)
    with pytest.raises(UndecidedError):
        check_decided({"": latencies_us(30)}, {"": DUE}, shortened, WINDOW)
    check_decided(
        {"": latencies_us(30)}, {"": DUE}, WINDOW, WINDOW
    )  # measured in full: nothing to decide


def test_a_shortened_window_says_so() -> None:
    shortened = replace(WINDOW, duration_s=1.2)
    (said,) = ended_early(shortened, WINDOW)
    assert said == Reason(ReasonKind.ENDED_EARLY, facts={"duration_s": shortened.duration_s})
    assert ended_early(WINDOW, WINDOW) == ()


def test_no_answer_at_all_is_no_latency() -> None:
    cut = replace(WINDOW, duration_s=WINDOW.duration_s / 2)
    check_answered(1, WINDOW, WINDOW)
    with pytest.raises(LoadFailedError):
        check_answered(0, WINDOW, WINDOW)
    with pytest.raises(UndecidedError):
        check_answered(0, cut, WINDOW)
