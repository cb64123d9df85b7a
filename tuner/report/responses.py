"""What requests of decoupled models got, which may be answered many times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

from tuner.measurement.measurement import Measurement
from tuner.measurement.responses import ResponseFigures
from tuner.record.responses import ResponseFacts, responses_of
from tuner.report.blocks import Table
from tuner.report.charts import sides
from tuner.report.data import ReportData
from tuner.report.quantities import latency_text
from tuner.spec.metrics import METRICS, Metric, Until
from tuner.spec.units import digits


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
    """The responses of the current and the best config, at the load each is judged at."""
    sent = [(name, responses_of(point.measurement)) for name, *_, point in sides(data)]
    return response_table([(name, own) for name, found in sent for own in found])


def response_table(found: Sequence[tuple[str, ResponseFacts]]) -> Table | None:
    """A row for each stream of each named config, equal streams one below the other."""
    if not found:
        return None
    until = " or ".join(sorted({own.latency_until for _, own in found}))
    rows = sorted((_row(name, own) for name, own in found), key=itemgetter(0))
    heads = tuple(head for head, _ in rows[0])
    cells = tuple(tuple(cell for _, cell in row) for row in rows)
    return Table(heads, cells, f"Responses; a latency elsewhere is until {until}")


def _row(config: str, own: ResponseFacts) -> list[tuple[str, str]]:
    """Its cells with their heads; a check has one config, which needs no name."""
    figures = own.figures
    return [
        ("", own.stream or "all requests"),
        *([("config", config)] if config else []),
        ("first response, p50", latency_text(figures.p50_first_response_us)),
        ("p99", latency_text(figures.p99_first_response_us)),
        ("last response, p50", latency_text(figures.p50_last_response_us)),
        ("p99", latency_text(figures.p99_last_response_us)),
        ("responses a request", count_of(figures)),
        ("not completed", f"{own.incomplete_count:,}"),
        ("answered again", f"{own.doubled_count:,}"),
    ]
