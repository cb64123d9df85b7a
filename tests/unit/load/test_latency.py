"""From time stamps to latencies, with and without what stalls of the machine held up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from tuner.load.latency import AnsweredRequests, observe_closed, observe_open
from tuner.load.quiet import Span, on_one_clock, quiet_spans, seconds_of, within
from tuner.load.traffic.arrivals import poisson
from tuner.measurement.responses import percentile
from tuner.measurement.window import Window

BEGIN_NS = 1_795_000_000_000_000_000  # wall clocks are large: float64 cannot hold them to the ns
WINDOW = Window(duration_s=2.0, warmup_s=0.5, deadline_s=60.0, tail_s=0.5)
Moments = npt.NDArray[np.float64]


def requests(sent_s: Moments, answered_s: Moments, end_s: float) -> AnsweredRequests:
    """As the export has them: only what was answered by the end."""
    seen = answered_s <= end_s
    sent = BEGIN_NS + np.round(sent_s[seen] * 1e9).astype(np.int64)
    answered = BEGIN_NS + np.round(answered_s[seen] * 1e9).astype(np.int64)
    return AnsweredRequests(sent, answered, BEGIN_NS + round(end_s * 1e9))


def one_server(sent_s: Moments, service_s: float) -> Moments:
    """When a queue with one server and constant service answers."""
    return sent_s + queue(sent_s, service_s, []) / 1e6


def test_below_saturation_latency_is_what_the_server_took() -> None:
    due = poisson(100.0, (0.5, 2.0, 0.5), seed=1)
    observed = observe_open(requests(due, due + 0.010, 3.1), due, WINDOW)
    assert observed.latencies_us == pytest.approx(np.full(200, 10_000.0), abs=1.0)
    assert observed.answered_count == pytest.approx(200, abs=3)
    assert observed.sent_per_s == pytest.approx(100.0)
    assert (observed.late_sends, observed.unanswered_count) == (0.0, 0)
    assert observed.mean_in_flight == pytest.approx(100.0 * 0.010, rel=0.02)


def test_latency_counts_from_the_due_time_when_the_client_stalls() -> None:
    due = np.arange(0.0, 3.0, 0.01)
    stalled = (due > 1.0) & (due < 1.5)
    sent = np.where(stalled, 1.5, due)
    observed = observe_open(requests(sent, sent + 0.001, 3.1), due, WINDOW)
    assert observed.latencies_us[-1] == pytest.approx(491_000.0, abs=100.0)
    assert observed.late_sends == pytest.approx(stalled.sum() / 200)
    assert np.sum(observed.latencies_us > 1_100.0) == stalled.sum()


def test_overload_shows_in_latency_although_only_the_quick_were_answered() -> None:
    due = poisson(200.0, (0.5, 2.0, 0.5), seed=1)
    observed = observe_open(requests(due, one_server(due, 0.010), 3.0), due, WINDOW)
    assert observed.answered_count == pytest.approx(200, abs=2)  # 100/s: its capacity
    assert observed.latencies_us.size == 400  # everything due, answered or not
    assert observed.unanswered_count == pytest.approx(200, abs=20)
    assert percentile(observed.latencies_us, 0.5) > 1_000_000.0
    assert observed.sent_per_s == pytest.approx(200.0, rel=0.01)
    assert observed.late_sends == 0.0


def test_an_unanswered_request_is_slower_than_all_answered_and_than_the_tail() -> None:
    due = np.arange(0.0, 3.0, 0.1)
    answered = due + 0.010
    answered[due > 2.15] = np.inf  # the server hangs
    observed = observe_open(requests(due, answered, 3.0), due, WINDOW)
    assert observed.unanswered_count == 3
    assert np.all(observed.latencies_us[-3:] >= 500_000.0)
    assert np.all(observed.latencies_us[:-3] < 11_000.0)


def test_the_schedule_goes_round_when_the_run_is_longer() -> None:
    due = np.array([0.1, 0.2, 0.3])
    sent = np.concatenate([due + 0.3 * i for i in range(10)])
    observed = observe_open(requests(sent, sent + 0.01, 3.1), due, WINDOW)
    assert observed.latencies_us == pytest.approx(
        np.full(observed.latencies_us.size, 10_000.0), abs=1.0
    )
    assert observed.latencies_us.size == pytest.approx(20, abs=1)


def test_a_closed_loop_counts_what_was_answered_inside_the_window() -> None:
    sent = np.concatenate([np.arange(0.0, 3.0, 0.02), np.arange(0.0, 3.0, 0.02)])
    observed = observe_closed(requests(np.sort(sent), np.sort(sent) + 0.02, 3.0), WINDOW)
    assert observed.answered_count == observed.latencies_us.size == pytest.approx(200, abs=2)
    assert observed.mean_in_flight == pytest.approx(2.0, abs=0.05)
    assert observed.late_sends is None


def test_littles_law_holds_for_a_queue_in_steady_state() -> None:
    due = poisson(80.0, (0.5, 2.0, 0.5), seed=5)
    observed = observe_open(requests(due, one_server(due, 0.010), 4.0), due, WINDOW)
    little = observed.answered_count / 2.0 * float(observed.latencies_us.mean()) / 1e6
    assert little == pytest.approx(observed.mean_in_flight, rel=0.1)


def test_lateness_of_sends_is_known_when_nothing_inside_was_answered() -> None:
    """Ten times too much: what was due before the window has not been worked off at its end."""
    due = poisson(1000.0, (0.5, 2.0, 0.5), seed=1)
    on_time = observe_open(requests(due, one_server(due, 0.010), 3.1), due, WINDOW)
    assert (on_time.late_sends, on_time.unanswered_count) == (0.0, 2000)
    stalled = np.where(due > 0.05, due + 0.2, due)
    behind = observe_open(requests(stalled, one_server(stalled, 0.010), 3.1), due, WINDOW)
    assert behind.late_sends is not None
    assert behind.late_sends > 0.5


def test_due_rate_counts_the_requests_of_the_window() -> None:
    due = poisson(100.0, (0.5, 2.0, 0.5), seed=1)
    observed = observe_open(requests(due, due + 0.010, 3.1), due, replace(WINDOW, duration_s=0.9))
    assert observed.due_per_s == pytest.approx(((due >= 0.5) & (due < 1.4)).sum() / 0.9)
    assert observed.sent_per_s == pytest.approx(observed.due_per_s)


def test_stall_and_the_requests_it_delayed_are_left_out_but_reported() -> None:
    due = np.arange(0.0, 31.0, 0.01)
    begin_ns = int(requests(due, due + 0.005, 31.1).sent_ns[0])
    late = due + 0.005
    late[(due > 10.0) & (due < 12.0)] = 12.1
    long = replace(WINDOW, duration_s=30.0)
    spells = ((begin_ns + 10_000_000_000, begin_ns + 11_900_000_000),)
    complete = observe_open(requests(due, late, 31.1), due, long)
    observed = observe_open(requests(due, late, 31.1), due, long, spells_ns=spells)
    assert percentile(complete.latencies_us, 0.99) > 1e6
    assert observed.latencies_us == pytest.approx(np.full(observed.latencies_us.size, 5e3), abs=1.0)
    assert 27.8 < seconds_of(observed.quiet) < 28.1
    assert observed.left_out_s == pytest.approx(30.0 - seconds_of(observed.quiet))
    assert complete.left_out_s == 0.0
    assert observed.due_per_s == pytest.approx(100.0, rel=0.01)
    assert observed.answered_count == pytest.approx(observed.latencies_us.size, abs=3)
    assert observed.mean_in_flight == pytest.approx(0.5, rel=0.05)
    assert observed.by_arrival_us is not None
    assert observed.by_arrival_us.size == observed.latencies_us.size
    (_, first_end), (second, _) = observed.quiet
    assert (first_end, second) == pytest.approx((9.99, 12.0), rel=1e-2)
    assert complete.all_by_arrival_us is None
    assert observed.all_by_arrival_us is not None
    assert (observed.all_by_arrival_us > 1e6).mean() == pytest.approx(11.1 / 300.0, abs=0.01)


@pytest.mark.parametrize(
    ("stalls", "rate", "excluded"),
    [
        ([(1.0, 1.7)], 300.0, True),  # once, then what queued up is worked off
        ([(0.4, 0.9), (1.5, 1.9)], 300.0, True),
        ([(0.4, 2.6)], 300.0, True),  # all of the window
        ([], 300.0, False),
        ([], 0.5, False),  # nobody asks: nobody is kept waiting
        ([(x, x + 0.1) for x in (0.6, 1.0, 1.4, 1.8, 2.2)], 300.0, False),  # it works like that
        ([], 1200.0, False),  # too much load: late, but answering all the time
    ],
)
def test_latencies_outside_a_few_gaps_without_answers_are_as_if_there_had_been_none(
    stalls: list[Span], rate: float, excluded: bool
) -> None:
    due = poisson(rate, (0.5, 2.0, 0.5), seed=1)
    answered = due + queue(due, 0.001, stalls) / 1e6
    seen = observe_open(requests(due, answered, 5.0), due, WINDOW)
    assert (seen.outside_gaps_us is not None) is excluded
    if seen.outside_gaps_us is not None:
        assert seen.latencies_us[-1] > 0.3e6
        assert seen.outside_gaps_us[-1] < 0.05e6
        assert 0.1 < seen.outside_gaps_us.size / seen.latencies_us.size < 0.8


def test_a_load_that_was_ended_in_a_gap_shows_it() -> None:
    due = poisson(300.0, (0.5, 2.0, 0.5), seed=1)
    answered = due + queue(due, 0.002, [(1.5, 9.0)]) / 1e6
    ended = replace(WINDOW, duration_s=1.2, tail_s=0.0)
    seen = observe_open(requests(due[due < 1.7], answered[due < 1.7], 1.7), due[due < 1.7], ended)
    assert seen.outside_gaps_us is not None
    assert seen.outside_gaps_us[-1] < 0.05e6


class TestSlices:
    SLICED = replace(WINDOW, slice_s=0.25)

    def test_there_are_no_slices_by_default(self) -> None:
        due = np.arange(0.0, 3.0, 0.01)
        assert observe_open(requests(due, due + 0.01, 3.1), due, WINDOW).slices == ()

    def test_a_stall_shows_in_its_slice_and_the_answers_in_the_next(self) -> None:
        due = np.arange(0.005, 3.0, 0.01)
        answered = due + 0.001
        stalled = (due > 1.0) & (due < 1.25)
        answered[stalled] = 1.3
        slices = observe_open(requests(due, answered, 3.1), due, self.SLICED).slices
        assert [s.start_s for s in slices] == [0.25 * k for k in range(12)]
        assert {s.due_per_s for s in slices} == {100.0}
        assert [s.answered_per_s for s in slices[3:7]] == [100.0, 0.0, 200.0, 100.0]
        assert slices[4].p99_latency_us == pytest.approx(295_000.0, abs=1.0)
        others = [s.p99_latency_us for s in (*slices[:4], *slices[5:])]
        assert others == pytest.approx([1000.0] * 11, abs=1.0)

    def test_requests_without_an_answer_are_slower_than_all_others(self) -> None:
        due = np.arange(0.005, 3.0, 0.01)
        answered = np.where(due < 2.0, due + 0.001, np.inf)
        answered[0] = 1.5
        slices = observe_open(requests(due, answered, 3.0), due, self.SLICED).slices
        assert [s.answered_per_s for s in slices[8:]] == [0.0] * 4
        slowest = slices[0].p99_latency_us
        assert slowest == pytest.approx(1_495_000.0, abs=1.0)
        assert [s.p99_latency_us for s in slices[8:]] == [slowest] * 4

    def test_refused_requests_were_due_and_have_no_latency(self) -> None:
        due = np.arange(0.005, 3.0, 0.01)
        refused = np.arange(1.001, 1.25, 0.005)
        slices = observe_open(requests(due, due + 0.001, 3.1), due, self.SLICED, refused).slices
        assert (slices[4].due_per_s, slices[4].refused_per_s) == (300.0, 200.0)
        assert slices[4].p99_latency_us == pytest.approx(1000.0, abs=1.0)
        assert sum(s.refused_per_s for s in slices) == 200.0

    def test_a_slice_without_requests_has_no_percentile(self) -> None:
        due = np.array([0.1, 0.6, 1.2])
        slices = observe_open(requests(due, due + 0.01, 3.1), due, self.SLICED).slices
        assert [s.p99_latency_us is None for s in slices[:5]] == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([1, 2, 3, 4], 0.5, 2), ([1, 2, 3, 4], 0.99, 4), ([7], 0.5, 7), (range(1, 101), 0.99, 99)],
)
def test_percentiles_are_observed_values(
    values: Sequence[int], share: float, expected: int
) -> None:
    assert percentile(np.array(values, dtype=float), share) == expected


def test_latencies_by_arrival_hold_those_refused_where_they_were_due() -> None:
    due = np.array([0.1, 0.2, 0.4, 0.5])
    observed = observe_open(
        requests(due[:3], due[:3] + np.array([0.01, 0.02, 0.03]), 2.0),
        due,
        Window(1.0, 0.0, 10.0),
        np.array([0.3]),
    )
    assert observed.by_arrival_us is not None
    by_arrival = observed.by_arrival_us.tolist()
    assert by_arrival[:4] == pytest.approx([10e3, 20e3, np.inf, 30e3])
    assert by_arrival[4] >= 1.5e6  # never answered


def queue(due_s: np.ndarray, service_s: float, stalls: list[Span]) -> np.ndarray:
    """Latencies in us of a queue with one server, which stands still during the stalls."""
    free, latency = 0.0, []
    for due in due_s:
        begin = max(due, free)
        for start, end in stalls:
            if start <= begin < end:
                begin = end
        free = begin + service_s
        latency.append((free - due) * 1e6)
    return np.array(latency)


def arrivals(rate: float, seconds: float, seed: int = 1) -> np.ndarray:
    gaps = np.random.default_rng(seed).exponential(1.0 / rate, int(rate * seconds))
    return np.cumsum(gaps)


def test_without_a_disturbed_period_the_full_window_counts() -> None:
    due = arrivals(100.0, 20.0)
    assert quiet_spans((2.0, 18.0), due, queue(due, 0.005, []), []) == ((2.0, 18.0),)


@pytest.mark.parametrize("load", [0.6, 0.9])
def test_requests_delayed_by_a_stall_are_left_out_until_the_queue_recovers(load: float) -> None:
    due = arrivals(load * 1000.0, 300.0)
    stalls = [(50.0, 52.0), (120.0, 121.0), (200.0, 203.0)]
    latency = queue(due, 0.001, stalls)
    quiet = quiet_spans((5.0, 295.0), due, latency, stalls)
    bound = np.quantile(queue(due, 0.001, []), 0.99)
    assert (latency > bound).mean() > 0.02
    assert (latency[within(due, quiet)] > bound).mean() == pytest.approx(0.01, abs=0.003)
    assert len(quiet) == 4
    assert seconds_of(quiet) > 0.7 * 290.0


def test_a_config_that_is_late_by_itself_stays_late() -> None:
    """Spells that change nothing take no late request away: which are left out is not chosen."""
    due = arrivals(900.0, 300.0)
    latency = queue(due, 0.001, [])
    bound = np.quantile(latency, 0.97)
    spells = [(float(s), float(s) + 1.0) for s in range(5, 300, 10)]
    quiet = quiet_spans((0.0, 300.0), due, latency, spells)
    assert len(quiet) > 10
    assert (latency[within(due, quiet)] > bound).mean() == pytest.approx(0.03, abs=0.01)


def test_a_queue_that_does_not_recover_is_left_out_to_the_end() -> None:
    due = arrivals(1000.0, 20.0)
    latency = np.where(due > 13.0, 2e6, 1e3)
    (only,) = quiet_spans((0.0, 20.0), due, latency, [(13.0, 14.0)])
    assert only == pytest.approx((0.0, 12.998))


def test_where_too_little_is_quiet_the_window_is_judged_as_it_is() -> None:
    due = arrivals(1000.0, 20.0)
    latency = queue(due, 0.0005, [(2.0, 14.0)])
    assert quiet_spans((0.0, 20.0), due, latency, [(2.0, 14.0)]) == ((0.0, 20.0),)


def test_spells_that_meet_are_one_and_one_before_the_window_is_none() -> None:
    due = arrivals(100.0, 20.0)
    spells = [(0.5, 1.0), (3.0, 4.0), (4.0, 5.0), (9.0, 9.5)]
    quiet = quiet_spans((2.0, 18.0), due, queue(due, 0.001, []), spells)
    assert len(quiet) == 3
    assert seconds_of(quiet) == pytest.approx(13.5, abs=0.2)


def test_a_clock_that_runs_in_the_quiet_only() -> None:
    moments = np.array([2.0, 2.5, 5.0, 9.0])
    assert on_one_clock(moments, ((2.0, 3.0), (5.0, 6.0), (8.0, 10.0))).tolist() == [
        0.0,
        0.5,
        1.0,
        3.0,
    ]
