"""A soak on a shared host: what the hypervisor's spells held up is left out, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.load.latency import Span, on_one_clock, quiet_spans, seconds_of, within


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


def test_without_a_spell_the_whole_window_counts() -> None:
    due = arrivals(100.0, 20.0)
    assert quiet_spans((2.0, 18.0), due, queue(due, 0.005, []), []) == ((2.0, 18.0),)


@pytest.mark.parametrize("load", [0.6, 0.9])
def test_what_a_stall_held_up_is_left_out_until_the_queue_is_as_usual(load: float) -> None:
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
