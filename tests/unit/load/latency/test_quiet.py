"""A soak on a shared host: what the hypervisor's spells held up is left out, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.load.latency.quiet import quiet_requests, quiet_s


def queue(due_s: np.ndarray, service_s: float, stalls: list[tuple[float, float]]) -> np.ndarray:
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


def test_without_a_spell_every_request_counts() -> None:
    due = arrivals(100.0, 20.0)
    counts, left_out = quiet_requests(due, queue(due, 0.005, []), [])
    assert counts.all()
    assert left_out == []


@pytest.mark.parametrize("load", [0.6, 0.9])
def test_what_a_stall_held_up_is_left_out_until_the_queue_is_as_usual(load: float) -> None:
    due = arrivals(load * 1000.0, 300.0)
    calm = queue(due, 0.001, [])
    stalls = [(50.0, 52.0), (120.0, 121.0), (200.0, 203.0)]
    latency = queue(due, 0.001, stalls)
    counts, left_out = quiet_requests(due, latency, stalls)
    bound = np.quantile(calm, 0.99)
    stalled_share = (latency > bound).mean()
    quiet_share = (latency[counts] > bound).mean()
    assert stalled_share > 0.02
    assert quiet_share == pytest.approx(0.01, abs=0.003)
    assert len(left_out) == 3
    assert counts.mean() > 0.7


def test_a_config_that_is_late_by_itself_stays_late() -> None:
    """Spells that change nothing take no late request away: which are left out is not chosen."""
    due = arrivals(900.0, 300.0)
    latency = queue(due, 0.001, [])
    bound = np.quantile(latency, 0.97)
    spells = [(float(s), float(s) + 1.0) for s in range(5, 300, 10)]
    counts, _ = quiet_requests(due, latency, spells)
    assert (latency[counts] > bound).mean() == pytest.approx(0.03, abs=0.01)


def test_a_queue_that_does_not_recover_leaves_nothing_after_the_spell() -> None:
    due = arrivals(1000.0, 20.0)
    latency = np.where(due > 5.0, 1e6, 1e3)
    counts, left_out = quiet_requests(due, np.where(due > 12.0, 2e6, latency), [(13.0, 14.0)])
    assert not counts[due > 13.0].any()
    assert quiet_s((0.0, 20.0), left_out) < 13.0


def test_spells_that_meet_are_one() -> None:
    due = arrivals(100.0, 20.0)
    latency = queue(due, 0.001, [])
    _, left_out = quiet_requests(due, latency, [(3.0, 4.0), (4.0, 5.0), (9.0, 9.5)])
    assert len(left_out) == 2
    assert quiet_s((0.0, 20.0), left_out) == pytest.approx(17.5, abs=0.2)
