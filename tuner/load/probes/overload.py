"""How a config behaves in an overload, and how long it takes to recover.

One open-loop run whose rate steps: calm, then above the config's capacity, then calm again
(`tuner.load.traffic.arrivals.STEPS`). The overload is the measured window, so that the figures are
those of the requests due in the overload; the slices also cover the time before and after.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from tuner.errors import LoadFailedError
from tuner.facts import is_empty
from tuner.load.probes.lone import LoneRequests
from tuner.load.traffic.arrivals import OVERLOAD
from tuner.load.validity import client_kept_up
from tuner.measurement.measurement import FailureReason, Failures, Measurement, Slice
from tuner.measurement.window import TAIL_OVER_BOUND, EarlyEnd, Window, bounds_of
from tuner.spec.slo import Slo
from tuner.spec.units import digits

SLICE_S = 0.25
#: Time after a server's start before its answers are typical.
_SETTLING_S = 0.5
#: Lengths of the other stretches, in calm stretches. A backlog of two stretches at 120% takes two
#: stretches at 80% to work off, so a server that keeps serving its capacity recovers halfway.
_OVERLOADED, _WATCHED = 2, 4
#: A calm stretch has at least this length, and at least this many times the latency bound.
_CALM_S, _CALM_OVER_BOUND = 0.5, 2.0
_SLACK_S = 40.0  # for a start on a busy machine, and for late answers
#: From the recovery on, this share of the slices is in time. Not all: a slice has few requests,
#: and one in a hundred may be late.
_STEADY = 0.9
#: Share of requests that may be late, or refused, for a p99 within its bound.
_ALLOWED = 0.01


@dataclass(frozen=True)
class Overload:
    """The behavior of one config at 120% of its capacity, for all streams together.

    The shares of late and refused requests are those of the stream that the SLO belongs to.

    Attributes:
        capacity_per_s: Requests per second that the config sustained within the SLOs.
        asked_per_s: Requests per second that were due in the overload.
        overload_s: Length of the overload.
        watched_s: Time after the overload, under a calm load, for which a verdict is possible.
        slo: The SLO on the tail of the latency, as text.
        bound_us: Its bound.
        served_per_s: Requests per second answered in the overload.
        p99_latency_us: p99 of the requests due in the overload; refused requests have no latency.
        late_share: Requests due in the overload that were not answered within the bound, refused
            ones included, 0..1.
        rejected_share: Requests that a queue policy refused in the overload, 0..1.
        recovered_after_s: Time from the end of the overload until the p99 of each slice is within
            the bound and stays there, with no more refused requests than that allows. 0: it never
            exceeded the bound; None: it did not recover in the time watched. It is the p99
            whatever percentile the SLO bounds: slices are too short to tell percentiles apart.
        slices: p99 and rates over time; ``start_s`` counts from the start of the overload.
        failures: Requests that failed in the overload, by reason.
        lone: Requests sent one at a time after the overload; None if no queue policy refuses
            requests.
    """

    capacity_per_s: float
    asked_per_s: float
    overload_s: float
    watched_s: float
    slo: str
    bound_us: float
    served_per_s: float
    p99_latency_us: float
    late_share: float
    rejected_share: float
    recovered_after_s: float | None
    slices: tuple[Slice, ...]
    failures: Annotated[Mapping[FailureReason, Failures], Field(exclude_if=is_empty)] = field(
        default_factory=dict
    )
    lone: Annotated[LoneRequests | None, Field(exclude_if=is_empty)] = None

    @property
    def missed(self) -> bool:
        """Whether more requests of the overload were late than a p99 allows."""
        return self.late_share > _ALLOWED

    @property
    def sentence(self) -> str:
        """The result in a sentence, in which "it" is the config."""
        offered = f"at {digits(self.asked_per_s, 4)}/s for {digits(self.overload_s)} s"
        start = f"{offered}, {_percent(OVERLOAD)} of what it sustained, it answered"
        refused = f", {_percent(self.rejected_share)} refused" if self.rejected_share else ""
        late = (
            f"p99 {digits(self.p99_latency_us / 1e3)} ms, {_percent(self.late_share)} late{refused}"
        )
        served = f"{start} {digits(self.served_per_s, 4)}/s ({late}); {self._recovery}."
        return " ".join([served, *self._refused()])

    def _refused(self) -> Iterator[str]:
        """Sentences about a queue policy: answered requests, failed ones, and lone ones later."""
        if self.rejected_share:
            kept = "were within" if self.p99_latency_us <= self.bound_us else "missed"
            yield f"Answered requests {kept} {self.slo}."
        for reason, failures in self.failures.items():
            yield f"{reason.words.capitalize()}: {failures.text}."
        if self.lone is not None:
            yield f"Afterwards {self.lone.text}."

    @property
    def _recovery(self) -> str:
        after = self.recovered_after_s
        if after is None:
            return f"{digits(self.watched_s)} s later it was not yet within {self.slo} again"
        if after == 0.0 and not self.missed:
            return f"it stayed within {self.slo}"
        if after == 0.0:
            return f"it was within {self.slo} again by the end of the overload"
        return f"it was within {self.slo} again {digits(after)} s after the overload ended"


def overload_window(slo: Slo) -> Window:
    """The window of an overload: settling and calm, overload, calm again."""
    calm_s = SLICE_S * math.ceil(max(_CALM_S, _CALM_OVER_BOUND * slo.within_s) / SLICE_S)
    before_s = _SETTLING_S + calm_s
    tail_s = _WATCHED * calm_s + TAIL_OVER_BOUND * slo.within_s
    total_s = before_s + _OVERLOADED * calm_s + tail_s
    return Window(
        duration_s=_OVERLOADED * calm_s,
        warmup_s=before_s,
        deadline_s=2.0 * total_s + _SLACK_S,
        tail_s=tail_s,
        slice_s=SLICE_S,
        bounds=bounds_of([slo]),
        ends_early=EarlyEnd.NEVER,
    )


def overload_of(measurement: Measurement, window: Window, slo: Slo) -> Overload:
    """The overload that a measurement in `overload_window` shows, for the SLO's stream.

    Raises:
        LoadFailedError: There are no figures over time, or the client could not keep up.
    """
    of_stream = measurement.of(slo.stream)
    if of_stream is None or not of_stream.slices or of_stream.latencies_us is None:
        raise LoadFailedError("without the latency of each request there are no figures over time")
    if not client_kept_up(measurement):
        raise LoadFailedError("the load generator could not keep up with the overload")
    slices = _judged(of_stream.slices, window, slo.bound)
    late = int((of_stream.latencies_us > slo.bound).sum()) + of_stream.failed_count
    due = of_stream.latencies_us.size + of_stream.failed_count
    return Overload(
        capacity_per_s=measurement.load.level,
        asked_per_s=OVERLOAD * measurement.load.level,
        overload_s=window.duration_s,
        watched_s=slices[-1].start_s + SLICE_S - window.duration_s,
        slo=str(slo),
        bound_us=slo.bound,
        served_per_s=measurement.completed_count / window.duration_s,
        p99_latency_us=of_stream.p99_latency_us,
        late_share=late / due,
        rejected_share=of_stream.rejected_count / due,
        recovered_after_s=recovered_after(slices, window.duration_s, slo.bound),
        slices=slices,
        failures=of_stream.failures,
    )


def recovered_after(slices: Sequence[Slice], overload_s: float, bound_us: float) -> float | None:
    """Seconds from the end of the overload until the p99 is within ``bound_us`` for good."""
    after = [s for s in slices if s.start_s >= overload_s and s.due_per_s > 0.0]
    late = [
        s.refused_per_s > _ALLOWED * s.due_per_s or (s.p99_latency_us or 0.0) > bound_us
        for s in after
    ]
    for k, part in enumerate(after):
        steady = late[k:].count(False) >= _STEADY * len(late[k:])
        if steady and not late[k]:
            return part.start_s - overload_s if any(late[:k]) else 0.0
    return None


def _judged(slices: Sequence[Slice], window: Window, bound_us: float) -> tuple[Slice, ...]:
    """Slices from where the server has settled, up to where answers may still be outstanding."""
    until_s = window.total_s - TAIL_OVER_BOUND * bound_us / 1e6
    return tuple(
        replace(s, start_s=s.start_s - window.warmup_s)
        for s in slices
        if s.start_s >= _SETTLING_S and s.start_s + SLICE_S <= until_s + 1e-9
    )


def _percent(share: float) -> str:
    return f"{digits(100.0 * share)}%"
