"""What requests of decoupled models got, which may be answered many times."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from tuner.measurement.measurement import FailureReason, Measurement
from tuner.measurement.responses import ResponseFigures
from tuner.report.blocks import Table
from tuner.report.charts import sides
from tuner.report.data import ReportData
from tuner.report.quantities import latency_text
from tuner.spec.metrics import METRICS, Metric, Until
from tuner.spec.units import digits

_HEADS = (
    *("", "config", "first response, p50", "p99", "last response, p50", "p99"),
    *("responses a request", "not completed", "answered again"),
)


def latency_metrics(measurement: Measurement) -> Iterator[Metric]:
    """The latencies that its requests have: one, or those of the first and the last response."""
    once = measurement.responses is None
    for metric in METRICS.values():
        if metric.is_latency and once is (metric.until is Until.ANSWER):
            yield metric


def count_of(figures: ResponseFigures) -> str:
    """`4`, or `4.2 (1 to 9)`."""
    mean, fewest, most = (
        getattr(figures, f"{name}_responses") for name in ("mean", "fewest", "most")
    )
    if mean is None or fewest == most:
        return str(fewest or 0)
    return f"{digits(mean, 2)} ({fewest} to {most})"


def responses(data: ReportData) -> Table | None:
    """Of the current and the best config, at the load that each is judged at."""
    found = [(name, point.measurement) for name, *_, point in sides(data)]
    rows = [row for name, measured in found for row in _rows(name, measured)]
    if not rows:
        return None
    until = {_until(own).value for _, measured in found for _, own in _streamed(measured)}
    caption = f"Responses; a latency elsewhere is until {' or '.join(sorted(until))}"
    return Table(_HEADS, tuple(sorted(rows, key=itemgetter(0))), caption)


def _streamed(measured: Measurement) -> Iterator[tuple[str, Measurement]]:
    """The streams whose model is decoupled."""
    for name, own in (measured.streams or {"": measured}).items():
        if own.responses is not None:
            yield name, own


def _until(own: Measurement) -> Until:
    """What its latencies are until."""
    first = own.responses and own.responses.p99_first_response_us == own.p99_latency_us
    return Until.FIRST if first else Until.LAST


def _rows(config: str, measured: Measurement) -> Iterator[tuple[str, ...]]:
    for stream, own in _streamed(measured):
        found = own.responses
        assert found is not None
        broken = (FailureReason.INCOMPLETE, FailureReason.DOUBLED)
        counts = (own.failures[reason].count if reason in own.failures else 0 for reason in broken)
        yield (
            stream or "all requests",
            config,
            latency_text(found.p50_first_response_us),
            latency_text(found.p99_first_response_us),
            latency_text(found.p50_last_response_us),
            latency_text(found.p99_last_response_us),
            count_of(found),
            *(f"{count:,}" for count in counts),
        )
