"""What a reader must know about a measurement before believing it, in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence

from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError
from tuner.load.client.job import refusal_in
from tuner.load.watch.sampler import Sample, pending_requests
from tuner.measurement.measurement import Arrivals, HostUse, LoadPoint, Measurement
from tuner.measurement.window import LatencyBound, Window
from tuner.reason import Fact, Reason, ReasonKind
from tuner.sentences import failed
from tuner.server.control import StatisticsSnapshot
from tuner.spec.labels import of_stream
from tuner.spec.metrics import requests_needed
from tuner.spec.units import count_text, digits

_LATE_SENDS = 0.05
#: Of the requests of a recording; told beyond it.
_NOT_AS_RECORDED = 0.001
#: Of the p99; latencies count from the moment a request was due, so that a lag is in them.
_LAG_SHARE = 0.10
_SENT_SHARE = 0.98
_CLIENT_SHARE = 0.20
_LITTLE = 0.10
#: Share of a core; beyond it, answers wait for the thread that is so busy.
BUSY = 0.7
#: Of an SLO, or of its cores: told where the load generator takes more for a request, or for all.
COSTLY = 0.10


def warnings_about(
    measurement: Measurement, bounds: Sequence[LatencyBound] = ()
) -> tuple[str, ...]:
    """Sentences about the load, the client and the sample; empty when nothing is wrong.

    Without ``bounds``, SLOs on percentiles of the latency, the sample is held to a p99.
    """
    return (
        *_throttled(measurement.host),
        *_client_behind(measurement),
        *_not_as_recorded(measurement),
        *_client_heavy(measurement),
        *(
            of_stream(name, sentence)
            for name, part in (measurement.streams or {"": measurement}).items()
            for sentence in (
                *_sample_small(part, [bound for bound in bounds if bound.holds_for(name)]),
                *_unanswered(part),
                *_littles_law(part),
            )
        ),
    )


def client_kept_up(measurement: Measurement) -> bool:
    """False when the load was not what was asked for: the result says nothing about the config."""
    return not any(_client_behind(measurement))


def client_behind(measurement: Measurement) -> ClientLimitError:
    """The error for a load generator that fell behind: it sent too little, or too late."""
    m = measurement
    little = _sent_too_little(m) is not None
    return _client_error(m.load, m.sent_per_s if little else None, *_sent_late(m))


def client_limit(load: LoadPoint, sent_per_s: float) -> ClientLimitError:
    """The error for a load generator that cannot send the load, with the rate that it did send."""
    if sent_per_s >= _SENT_SHARE * load.level:
        return _client_error(load, None)
    return _client_error(load, sent_per_s)


def _client_error(load: LoadPoint, sent_per_s: float | None, *late: str) -> ClientLimitError:
    facts: dict[str, Fact] = {"load": str(load)}
    if sent_per_s is not None:
        facts["sent_per_s"] = float(sent_per_s)
    if late:
        facts["late"] = "; ".join(late)
    return failed(
        ClientLimitError,
        Reason(ReasonKind.CLIENT_BEHIND, facts=facts),
        "give it more cores (workload.cpus, or server.mode: remote from another machine), try the "
        "other workload.protocol, or raise workload.batch_size",
        sent_per_s=sent_per_s,
    )


def refuse_failures(
    before: StatisticsSnapshot,
    after: StatisticsSnapshot,
    answered: Sequence[str],
    logged: Callable[[], str],
    *,
    dropped: bool = False,
) -> None:
    """Looks for requests that failed, in a load of which a generator tells the first ones only.

    The server counts those that a model raised an error for; one whose answer is an error counts
    as a success (a Python model's TritonError), and one that a full queue refuses not at all.

    Args:
        before: The server's counters before the load; ``after``: after it.
        answered: Errors that requests were answered with, as far as the generator tells.
        logged: The last error in the server's log, where it told none; may be empty.
        dropped: The load generator was killed while it waited for answers. Requests that Triton
            drops then count as failed too, so only an error's words show that one failed.

    Raises:
        ModelFailsError: The model answered requests with errors.
        LoadFailedError: A queue policy refused requests.
    """
    count = after.fail_count - before.fail_count
    sent_count = count + after.success_count - before.success_count
    words = [word for word in answered if refusal_in(word) is None]
    if answered and not words:
        raise LoadFailedError(f"a queue policy refused requests: {answered[-1]}")
    said = "; ".join(dict.fromkeys(words))
    if count <= 0 and said:
        raise answered_with_errors(len(words), sent_count, said, at_least=True)
    if count > 0 and ((said := said or logged()) or not dropped):
        facts: dict[str, Fact] = {"failed_count": count, "request_count": sent_count, "words": said}
        raise failed(ModelFailsError, Reason(ReasonKind.MODEL_FAILED_REQUESTS, facts=facts))


def answered_with_errors(
    count: int, sent_count: int, words: str, *, at_least: bool = False
) -> ModelFailsError:
    """The error for requests that a model answered with an error, in its own words."""
    facts: dict[str, Fact] = {
        "failed_count": count,
        "request_count": sent_count,
        "at_least": at_least,
        "words": words,
    }
    return failed(ModelFailsError, Reason(ReasonKind.MODEL_ANSWERED_ERRORS, facts=facts))


def received_count(
    samples: Sequence[Sample], model: str, waiting_at: Collection[str]
) -> int | None:
    """Requests that reached a model: answered, or waiting at the end; None when not known.

    Those being executed at the end are not among them. ``waiting_at``: the models in whose queues
    they wait, an ensemble's steps among them.
    """
    if len(samples) < 2 or samples[-1].metrics is None:
        return None
    first, last = samples[0].statistics[model], samples[-1].statistics[model]
    waiting = sum(pending_requests(samples[-1].metrics, waiting_at))
    answered = last.success_count + last.fail_count - first.success_count - first.fail_count
    return answered + int(waiting)


def client_busy(share: float) -> tuple[str, ...]:
    """The warning about a load generator whose thread is this busy, as a share of one core."""
    if share <= BUSY:
        return ()
    sentence = f"The load generator was busy for {share:.0%} of the time"
    return (f"{sentence}: latencies include the time that answers waited for it.",)


def client_cost(
    request_s: float, share: float, cores: int, bounds: Sequence[LatencyBound]
) -> Iterator[str]:
    """The warning about a load generator that takes much CPU itself.

    Args:
        request_s: CPU time for a request.
        share: What it took of its cores, 0..1.
    """
    tightest_s = min((bound.within_s for bound in bounds), default=math.inf)
    parts = {"the tightest latency SLO": request_s / tightest_s, count_text(cores, "core"): share}
    shares = [f"{part:.0%} of {what}" for what, part in parts.items() if part > COSTLY]
    if shares:
        yield (
            f"The load generator itself took {digits(1e3 * request_s, 2)} ms of CPU for a request: "
            f"{' and '.join(shares)}."
        )


def ended_early(window: Window, planned: Window) -> tuple[str, ...]:
    """The warning about a window that is shorter than planned."""
    if window.duration_s >= planned.duration_s:
        return ()
    return (f"Stopped after {digits(window.duration_s, 2)} s: the SLO was already missed.",)


def _throttled(host: HostUse) -> Iterator[str]:
    """No disturbance: it is a config's own load that heats a GPU."""
    if host.gpu_throttled:
        clock = "" if host.gpu_clock_mhz is None else f", down to {host.gpu_clock_mhz:.0f} MHz"
        yield f"A GPU's clocks were held down by heat or power meanwhile{clock}."


def _client_behind(m: Measurement) -> Iterator[str]:
    for late in _sent_late(m):
        yield f"The load generator could not keep up: {late}."
    due_per_s = _sent_too_little(m)
    if due_per_s is not None:
        yield (
            f"The load generator could not keep up: it sent {_sent(m)} of {digits(due_per_s, 4)} "
            "requests per second."
        )


def _not_as_recorded(m: Measurement) -> Iterator[str]:
    """A recording's times are exact to 1 ms, or the share of those that are not is told."""
    late = m.late_sends or 0.0
    if m.load.arrivals is Arrivals.RECORDING and late > _NOT_AS_RECORDED:
        yield f"{digits(100.0 * late, 2)}% of the recorded requests were sent over 1 ms late."


def _sent(m: Measurement) -> str:
    assert m.sent_per_s is not None
    return digits(m.sent_per_s, 4)


def _sent_late(m: Measurement) -> Iterator[str]:
    """In a mix, the streams whose latencies are the client's own."""
    for part in m.streams.values() or (m,):
        if part.late_sends is not None and part.late_sends > _LATE_SENDS and _lag_matters(part):
            late = f"{part.late_sends:.0%} of the requests were sent more than 1 ms late"
            lag_us = part.send_lag_p99_us
            yield late if lag_us is None else f"{late}, 1% by {digits(lag_us / 1e3)} ms or more"
            return


def _sent_too_little(m: Measurement) -> float | None:
    """The requests per second that were asked for, where clearly less was sent."""
    due_per_s = m.due_per_s
    if due_per_s is None and m.load.arrivals in (Arrivals.POISSON, Arrivals.BURSTS):
        due_per_s = m.load.level  # in every window
    if due_per_s is None or m.sent_per_s is None or m.sent_per_s >= _SENT_SHARE * due_per_s:
        return None
    return due_per_s


def _lag_matters(m: Measurement) -> bool:
    """Whether the tail of latencies is the client's own; True when that is not known.

    False where every SLO was met anyway: latencies count from the moment a request was due, so a
    late client can only make them longer.
    """
    if m.within_bounds:
        return False
    return m.send_lag_p99_us is None or m.send_lag_p99_us > _LAG_SHARE * m.p99_latency_us


def _client_heavy(m: Measurement) -> Iterator[str]:
    if m.client_send_us is None or m.client_recv_us is None or m.avg_latency_us <= 0.0:
        return
    share = (m.client_send_us + m.client_recv_us) / m.avg_latency_us
    if share > _CLIENT_SHARE:
        yield f"The load generator itself takes {share:.0%} of the latency."


def _sample_small(m: Measurement, bounds: Sequence[LatencyBound]) -> Iterator[str]:
    share = max((bound.share for bound in bounds), default=0.99)
    needed, percent = requests_needed(share), f"{100.0 * share:g}"
    if m.completed_count < needed and m.within_bounds is not False:
        yield (
            f"Only {count_text(m.completed_count, 'request')}: too few to prove a p{percent} "
            f"({needed:,} needed at least)."
        )


def _unanswered(m: Measurement) -> Iterator[str]:
    if m.unanswered_count:
        yield (
            f"{count_text(m.unanswered_count, 'request')} without an answer before the run ended: "
            "slower than all others, so that percentiles which reach there are lower bounds."
        )


def _littles_law(m: Measurement) -> Iterator[str]:
    """Little's law: mean number in flight = rate of requests x mean latency, if steady."""
    expected = m.load.level if not m.load.arrivals.open_loop else m.mean_in_flight
    if expected is None or m.unanswered_count:
        return
    in_flight = m.requests_per_s * m.avg_answer_us / 1e6
    if abs(in_flight - expected) > max(_LITTLE * expected, 1.0):
        yield (
            f"Little's law does not hold: rate times latency gives {digits(in_flight)} requests in "
            f"flight, there were {digits(expected)}; the system was not in a steady state."
        )
