"""What a reader must know about a measurement before believing it, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.load.length import requests_needed
from tuner.load.measurement import Arrivals, Measurement

_LATE_SENDS = 0.05
_SENT_SHARE = 0.98
_CLIENT_SHARE = 0.20
_LITTLE = 0.10


def warnings_about(measurement: Measurement) -> tuple[str, ...]:
    """Sentences about the load, the client and the sample; empty when nothing is wrong."""
    return (
        *_client_behind(measurement),
        *_client_heavy(measurement),
        *_sample_small(measurement),
        *_unanswered(measurement),
        *_littles_law(measurement),
    )


def client_kept_up(measurement: Measurement) -> bool:
    """False when the load was not what was asked for: the result says nothing about the config."""
    return not any(_client_behind(measurement))


def _client_behind(m: Measurement) -> Iterator[str]:
    if m.late_sends is not None and m.late_sends > _LATE_SENDS:
        yield (
            f"The load generator could not keep up: {m.late_sends:.0%} of the requests were sent "
            "more than 1 ms late."
        )
    asked = m.load.level
    exact = m.load.arrivals in (Arrivals.POISSON, Arrivals.BURSTS)  # in every window
    if exact and m.sent_per_s is not None and m.sent_per_s < _SENT_SHARE * asked:
        yield (
            f"The load generator could not keep up: it sent {m.sent_per_s:.4g} of {asked:.4g} "
            "requests per second."
        )


def _client_heavy(m: Measurement) -> Iterator[str]:
    if m.client_send_us is None or m.client_recv_us is None or m.avg_latency_us <= 0.0:
        return
    share = (m.client_send_us + m.client_recv_us) / m.avg_latency_us
    if share > _CLIENT_SHARE:
        yield f"The load generator itself takes {share:.0%} of the latency."


def _sample_small(m: Measurement) -> Iterator[str]:
    needed = requests_needed(0.99)
    if m.completed_count < needed:
        yield (
            f"p99 rests on {m.completed_count} requests; {needed} are needed to show that "
            "99 % are in time."
        )


def _unanswered(m: Measurement) -> Iterator[str]:
    if m.unanswered_count:
        yield (
            f"{m.unanswered_count} requests were not answered before the run ended; they count "
            "as slower than all others, and percentiles among them are lower bounds."
        )


def _littles_law(m: Measurement) -> Iterator[str]:
    """Little's law: mean number in flight = rate of requests x mean latency, if steady."""
    expected = m.load.level if not m.load.arrivals.open_loop else m.mean_in_flight
    if expected is None or m.unanswered_count:
        return
    found = m.throughput_infer_per_s / m.batch_size * m.avg_latency_us / 1e6
    if abs(found - expected) > max(_LITTLE * expected, 1.0):
        yield (
            f"Little's law does not hold: rate times latency gives {found:.3g} requests in "
            f"flight, there were {expected:.3g}; the system was not in a steady state."
        )
