"""What requests of decoupled models got, and how many of their answers were broken."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.measurement.measurement import FailureReason, Figures, Measurement
from tuner.measurement.responses import ResponseFigures
from tuner.spec.metrics import Until


@dataclass(frozen=True)
class ResponseFacts:
    """What a stream's requests got in one measurement.

    Attributes:
        stream: Whose requests, of several; else "".
        latency_until: What is called their latency elsewhere lasts until then.
        incomplete_count: Requests that got no final response.
        doubled_count: Requests that got more after it.
    """

    stream: str
    figures: ResponseFigures
    latency_until: str
    incomplete_count: int = 0
    doubled_count: int = 0


def responses_of(measured: Measurement) -> tuple[ResponseFacts, ...]:
    """Those of each stream whose model is decoupled."""
    return tuple(
        _facts(stream, stream_measured, stream_measured.responses)
        for stream, stream_measured in (measured.streams or {"": measured}).items()
        if stream_measured.responses is not None
    )


def _facts(stream: str, measured: Figures, figures: ResponseFigures) -> ResponseFacts:
    until = Until.FIRST if measured.p99_latency_us == figures.p99_first_response_us else Until.LAST
    lost, again = (
        measured.failures[reason].count if reason in measured.failures else 0
        for reason in (FailureReason.INCOMPLETE, FailureReason.DOUBLED)
    )
    return ResponseFacts(stream, figures, until.value, lost, again)
