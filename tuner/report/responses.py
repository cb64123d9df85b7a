"""Latencies of requests to decoupled models, which may have several responses."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.measurement.measurement import Figures
from tuner.measurement.responses import ResponseFigures
from tuner.spec.metrics import METRICS, Metric, Until
from tuner.spec.units import digits


def latency_metrics(measurement: Figures) -> Iterator[Metric]:
    """The latency metrics of the requests: one, or those of the first and the last response."""
    once = measurement.responses is None
    for metric in METRICS.values():
        if metric.is_latency and once is (metric.until is Until.ANSWER):
            yield metric


def count_of(figures: ResponseFigures) -> str:
    """The number of responses, as `4` or `4.2 (1 to 9)`."""
    mean, fewest, most = (
        getattr(figures, f"{name}_responses") for name in ("mean", "fewest", "most")
    )
    if mean is None or fewest == most:
        return str(fewest or 0)
    return f"{digits(mean, 2)} ({fewest} to {most})"
