"""Warnings about a measurement: what a reader must know before trusting it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError
from tuner.load.client.job import refusal_in
from tuner.load.watch.sampler import Sample, pending_requests
from tuner.measurement.host_use import HostUse
from tuner.measurement.measurement import Arrivals, Figures, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.reason import Fact, Reason, ReasonKind
from tuner.sentences import failed
from tuner.server.control import StatisticsSnapshot
from tuner.spec.metrics import requests_needed
from tuner.spec.slo import Slo

_LATE_SENDS = 0.05
#: Share of a recording's requests; a larger share of late ones is reported.
_NOT_AS_RECORDED = 0.001
#: Share of the p99; latencies count from the moment a request was due, so they include this lag.
_LAG_SHARE = 0.10
_SENT_SHARE = 0.98
#: Arrivals whose level is what each window sends.
_LEVEL_IN_WINDOWS = (Arrivals.POISSON, Arrivals.CONSTANT, Arrivals.BURSTS)
_CLIENT_SHARE = 0.20
_LITTLE = 0.10
#: Share of a core; above it, answers wait for the busy thread.
BUSY = 0.7
#: Share of an SLO's bound (per request), or of the load generator's cores, that is reported.
COSTLY = 0.10


def warnings_about(measurement: Measurement, bounds: Sequence[Slo] = ()) -> tuple[Reason, ...]:
    """Warnings about the load, the client and the sample; empty if nothing is wrong.

    Args:
        bounds: SLOs on percentiles of the latency; without any, the sample must suffice for a p99.
    """
    return (
        *_throttled(measurement.host),
        *_client_behind(measurement),
        *_not_as_recorded(measurement),
        *_client_heavy(measurement),
        *(
            replace(reason, subject=name)
            for name, part in (measurement.streams or {"": measurement}).items()
            for reason in (
                *_sample_small(part, [bound for bound in bounds if bound.holds_for(name)]),
                *_unanswered(part),
                *_littles_law(part),
            )
        ),
    )


def client_kept_up(measurement: Measurement) -> bool:
    """Whether the load was as planned; if not, the result says nothing about the config."""
    return not any(_client_behind(measurement))


def client_behind(measurement: Measurement) -> ClientLimitError:
    """The error for a load generator that fell behind: it sent too few requests, or too late."""
    m = measurement
    little = _sent_too_little(m) is not None
    return _client_error(m.load, m.sent_per_s if little else None, *_sent_late(m))


def client_limit(load: LoadPoint, sent_per_s: float) -> ClientLimitError:
    """The error for a load generator that cannot send the load, with the rate that it sent."""
    if sent_per_s >= _SENT_SHARE * load.level:
        return _client_error(load, None)
    return _client_error(load, sent_per_s)


def too_many_clients(
    load: LoadPoint, window: Window, answered_per_s: float, cause: Reason
) -> LoadFailedError | None:
    """The error for a closed loop without a result whose clients do not all get an answer in time.

    Args:
        load: The number of clients.
        window: The window in which each of them would get an answer.
        answered_per_s: Requests per second that the server answered meanwhile.
        cause: Why there is no result.
    """
    fit = int(answered_per_s * window.duration_s)
    if fit < 1 or fit >= load.level:
        return None
    facts: dict[str, Fact] = {
        "clients": round(load.level),
        "answered_per_s": float(answered_per_s),
        "window_s": window.duration_s,
        "fitting_clients": fit,
    }
    return failed(
        LoadFailedError, Reason(ReasonKind.TOO_MANY_CLIENTS, facts=facts, causes=(cause,))
    )


def _client_error(load: LoadPoint, sent_per_s: float | None, *late: Reason) -> ClientLimitError:
    facts: dict[str, Fact] = {"load": str(load)}
    if sent_per_s is not None:
        facts["sent_per_s"] = float(sent_per_s)
    return failed(
        ClientLimitError,
        Reason(ReasonKind.CLIENT_BEHIND, facts=facts, causes=late),
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
    """Looks for failed requests after a load whose generator reports only the first ones.

    The server's counter of failures has requests for which a model raised an error. A request whose
    answer is an error counts as a success (a Python model's TritonError), and a request refused by
    a full queue is not counted at all.

    Args:
        before: The server's counters before the load.
        after: The server's counters after the load.
        answered: Errors that requests were answered with, as far as the generator reports them.
        logged: Returns the last error in the server's log; used if the server reports none.
        dropped: The load generator was killed while it waited for answers. Triton counts requests
            that it drops then as failures too, so only an error message shows a real one.

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
    """The error for requests that a model answered with an error; ``words``: the model's own."""
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
    """Requests that reached a model: answered ones, and those waiting at the end; None if unknown.

    Requests in execution at the end are not included. ``waiting_at``: the models whose queues
    count, including an ensemble's steps.
    """
    if len(samples) < 2 or samples[-1].metrics is None:
        return None
    first, last = samples[0].statistics[model], samples[-1].statistics[model]
    waiting = sum(pending_requests(samples[-1].metrics, waiting_at))
    answered = last.success_count + last.fail_count - first.success_count - first.fail_count
    return answered + int(waiting)


def client_busy(share: float) -> tuple[Reason, ...]:
    """The warning about a load generator whose thread is busy for this share of one core."""
    if share <= BUSY:
        return ()
    return (Reason(ReasonKind.CLIENT_BUSY, facts={"busy_share": float(share)}),)


def client_cost(
    request_s: float, share: float, cores: int, bounds: Sequence[Slo]
) -> Iterator[Reason]:
    """The warning about a load generator that uses much CPU.

    Args:
        request_s: CPU time per request.
        share: Share of its cores that it used, 0..1.
        cores: Number of its cores.
        bounds: SLOs on percentiles of the latency.
    """
    tightest_s = min((bound.within_s for bound in bounds), default=math.inf)
    facts: dict[str, Fact] = {}
    if (slo_share := request_s / tightest_s) > COSTLY:
        facts["slo_share"] = float(slo_share)
    if share > COSTLY:
        facts |= {"core_share": float(share), "core_count": cores}
    if facts:
        facts["request_ms"] = float(1e3 * request_s)
        yield Reason(ReasonKind.CLIENT_COSTLY, facts=facts)


def ended_early(window: Window, planned: Window) -> tuple[Reason, ...]:
    """The warning about a window that is shorter than planned."""
    if window.duration_s >= planned.duration_s:
        return ()
    return (Reason(ReasonKind.ENDED_EARLY, facts={"duration_s": float(window.duration_s)}),)


def _throttled(host: HostUse) -> Iterator[Reason]:
    """Not a disturbance: a config's own load heats a GPU."""
    if host.gpu_throttled:
        clock_mhz = host.gpu_clock_mhz
        facts: dict[str, Fact] = {} if clock_mhz is None else {"clock_mhz": clock_mhz}
        yield Reason(ReasonKind.GPU_THROTTLED, facts=facts)


def _client_behind(m: Measurement) -> Iterator[Reason]:
    yield from _sent_late(m)
    if (due_per_s := _sent_too_little(m)) is not None and m.sent_per_s is not None:
        facts: dict[str, Fact] = {"sent_per_s": m.sent_per_s, "due_per_s": due_per_s}
        yield Reason(ReasonKind.SENT_TOO_LITTLE, facts=facts)


def _not_as_recorded(m: Measurement) -> Iterator[Reason]:
    """A recording's times are exact to 1 ms; the warning gives the share of other requests."""
    late = m.late_sends or 0.0
    if m.load.arrivals is Arrivals.RECORDING and late > _NOT_AS_RECORDED:
        yield Reason(ReasonKind.NOT_AS_RECORDED, facts={"late_percent": 100.0 * late})


def _sent_late(m: Measurement) -> Iterator[Reason]:
    """For several streams, a warning per stream whose latencies are the client's fault."""
    for part in m.streams.values() or (m,):
        if part.late_sends is not None and part.late_sends > _LATE_SENDS and _lag_matters(part):
            facts: dict[str, Fact] = {"late_share": part.late_sends}
            if part.send_lag_p99_us is not None:
                facts["lag_p99_us"] = part.send_lag_p99_us
            yield Reason(ReasonKind.SENT_LATE, facts=facts)
            return


def _sent_too_little(m: Measurement) -> float | None:
    """The planned requests per second, if clearly fewer were sent."""
    due_per_s = m.due_per_s
    if due_per_s is None and m.load.arrivals in _LEVEL_IN_WINDOWS:
        due_per_s = m.load.level  # holds in every window
    if due_per_s is None or m.sent_per_s is None or m.sent_per_s >= _SENT_SHARE * due_per_s:
        return None
    return due_per_s


def _lag_matters(m: Figures) -> bool:
    """Whether the client causes the tail of the latencies; True if unknown.

    False if every SLO was met: latencies count from the moment a request was due, so a late client
    can only make them longer.
    """
    if m.within_bounds:
        return False
    return m.send_lag_p99_us is None or m.send_lag_p99_us > _LAG_SHARE * m.p99_latency_us


def _client_heavy(m: Measurement) -> Iterator[Reason]:
    if m.client_send_us is None or m.client_recv_us is None or m.avg_latency_us <= 0.0:
        return
    share = (m.client_send_us + m.client_recv_us) / m.avg_latency_us
    if share > _CLIENT_SHARE:
        yield Reason(ReasonKind.CLIENT_IN_LATENCY, facts={"latency_share": share})


def _sample_small(m: Figures, bounds: Sequence[Slo]) -> Iterator[Reason]:
    share = max((bound.share for bound in bounds), default=0.99)
    needed = requests_needed(share)
    if m.completed_count < needed and m.within_bounds is not False:
        facts: dict[str, Fact] = {
            "completed_count": m.completed_count,
            "needed_count": needed,
            "quantile": share,
        }
        yield Reason(ReasonKind.SAMPLE_SMALL, facts=facts)


def _unanswered(m: Figures) -> Iterator[Reason]:
    if m.unanswered_count:
        yield Reason(ReasonKind.UNANSWERED, facts={"unanswered_count": m.unanswered_count})


def _littles_law(m: Figures) -> Iterator[Reason]:
    """Little's law: mean number in flight = rate of requests x mean latency, in a steady state."""
    expected = m.load.level if not m.load.arrivals.open_loop else m.mean_in_flight
    if expected is None or m.unanswered_count:
        return
    in_flight = m.requests_per_s * m.avg_answer_us / 1e6
    if abs(in_flight - expected) > max(_LITTLE * expected, 1.0):
        facts: dict[str, Fact] = {"by_rate": float(in_flight), "in_flight": float(expected)}
        yield Reason(ReasonKind.NOT_STEADY, facts=facts)
