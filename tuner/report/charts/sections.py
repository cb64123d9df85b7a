"""Every chart of a report, by its section of the page."""

from __future__ import annotations

from tuner.report.charts.chart import Chart
from tuner.report.charts.front import front
from tuner.report.charts.latency import curves
from tuner.report.charts.load_curve import load_curve
from tuner.report.charts.overload import over_time
from tuner.report.charts.prediction import predicted
from tuner.report.charts.request import batches, latency_parts, model_times
from tuner.report.charts.resources import cache, gpu
from tuner.report.charts.search import history, importances, slices, wall_time
from tuner.report.data import ReportData


def by_section(data: ReportData) -> dict[str, tuple[Chart, ...]]:
    """Charts that the run has data for; a section without any is empty."""
    return {
        "load": (*curves(data), *_given(load_curve(data), front(data))),
        "request-time": (*_given(latency_parts(data), model_times(data)), *batches(data)),
        "importance": _given(importances(data)),
        "slices": slices(data),
        "prediction": _given(predicted(data)),
        "history": _given(history(data)),
        "wall-time": _given(wall_time(data)),
        "resources": _given(cache(data), gpu(data)),
        "overload": _given(over_time(data)),
    }


def _given(*charts: Chart | None) -> tuple[Chart, ...]:
    return tuple(chart for chart in charts if chart is not None)
