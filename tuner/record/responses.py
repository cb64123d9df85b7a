"""Responses of decoupled models: their latencies, and how many answers were incomplete."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.measurement.measurement import FailureReason, Figures, Measurement
from tuner.measurement.responses import ResponseFigures
from tuner.spec.metrics import Until


@dataclass(frozen=True)
class ResponseFacts:
    """Figures of a stream's requests in one measurement.

    Attributes:
        stream: Name of the stream; "" with one stream.
        latency_until: The response, first or last, that "latency" means elsewhere in the files.
        incomplete_count: Requests without a final response.
        doubled_count: Requests with more responses after the final one.
    """

    stream: str
    figures: ResponseFigures
    latency_until: str
    incomplete_count: int = 0
    doubled_count: int = 0


def responses_of(measured: Measurement) -> tuple[ResponseFacts, ...]:
    """Figures of each stream whose model is decoupled."""
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
