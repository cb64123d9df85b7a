"""Every trial as a point: by its number, and by throughput and latency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.report.analysis import incumbent, latency_slos, pareto
from tuner.report.blocks import Chart, Table
from tuner.report.by_load import memory_bytes
from tuner.report.charts import (
    GREEN,
    MS,
    TrialMarker,
    axis,
    hover,
    latency_layout,
    line,
    scatter,
    sides,
)
from tuner.report.data import ReportData, judged_point
from tuner.report.quantities import NOTHING, rate_text
from tuner.report.sentence import change_text, score_axis, score_text
from tuner.report.tables import p99_of
from tuner.score.trial import Trial, TrialState
from tuner.spec.units import bytes_text

_CLICK = "Click a point to see the trial."


def history(data: ReportData) -> Chart | None:
    """The score of every trial, and the best config so far."""
    scored = [t for t in data.trials if t.score is not None]
    if not scored:
        return None
    title, factor = score_axis(data)
    steps = [*incumbent(data)]
    if steps:
        steps.append((data.trials[-1].number, steps[-1][1]))
    best = line(
        "best so far", [n for n, _ in steps], [v * factor for _, v in steps], GREEN, shape="hv"
    )
    last = data.trials[-1].number
    x_axis = {**axis("trial"), "range": [-0.5 - last / 50, last + 0.5 + last / 50]}
    if last <= 12:
        x_axis["dtick"] = 1
    plotted = [(t, t.number, _score(t) * factor) for t in (*scored, *data.failed)]
    traces = [*_by_outcome(data, plotted), best]
    early = "A trial that was stopped early is drawn at its best possible score."
    current = None if data.current is None else data.trial_of(data.current)
    which = "" if current is None else f"Trial {current.number} is the current config. "
    return Chart(
        name="history",
        title="Scores by trial",
        note=f"{which}{early} {_CLICK}",
        figure={"data": traces, "layout": {"xaxis": x_axis, "yaxis": axis(title)}},
        table=_table(data, scored),
    )


def front(data: ReportData) -> Chart | None:
    """Throughput and latency of every measured trial, and the Pareto front."""
    latency, slos = next(iter(latency_slos(data).items()))
    points = [
        (trial, point.measurement.throughput_infer_per_s, us * MS)
        for trial in data.trials
        if trial.score is not None
        and (point := judged_point(trial)) is not None
        and (us := latency.of(point)) is not None
    ]
    if not points:
        return None
    values = [ms for *_, ms in points]
    layout, edge = latency_layout("throughput (infer/s)", f"{latency} (ms)", values, slos)
    plotted = [(trial, rate, min(ms, edge)) for trial, rate, ms in points]
    measured = [(rate, ms) for trial, rate, ms in points if trial.state is TrialState.MEASURED]
    best = [(rate, ms) for rate, ms in pareto(measured) if ms < edge]
    traces = []
    if len(best) > 1:
        x, y = [rate for rate, _ in best], [ms for _, ms in best]
        traces.append(line("Pareto front", x, y, GREEN, shape="hv"))
    traces += _by_outcome(data, plotted)
    for name, color, _, point in sides(data):
        if (us := latency.of(point)) is not None:
            x, y = [point.measurement.throughput_infer_per_s], [min(us * MS, edge)]
            text, symbol = [hover(name)], "circle-open"
            traces.append(scatter(name, x, y, color=color, text=text, symbol=symbol, size=17))
    beyond = " A point at the upper edge is really higher." if max(values) > edge else ""
    return Chart(
        name="pareto",
        title="All measured configs",
        note="One point per trial, at the load that its score is for. No config beats those on the "
        f"line in both directions.{beyond} {_CLICK}",
        figure={"data": traces, "layout": layout},
        table=_table(data, [trial for trial, *_ in plotted]),
    )


def _by_outcome(
    data: ReportData, plotted: Sequence[tuple[Trial, object, float]]
) -> list[dict[str, Any]]:
    """Trials as points, one trace per outcome."""
    traces = []
    for outcome in TrialMarker:
        members = [row for row in plotted if TrialMarker.of(row[0]) is outcome]
        if not members:
            continue
        trials, x, y = zip(*members, strict=True)
        clipped: dict[str, Any] = {"cliponaxis": False} if outcome is TrialMarker.FAILED else {}
        trace = scatter(
            outcome.words,
            x,
            y,
            color=outcome.color,
            symbol=outcome.symbol,
            text=[_text(data, t) for t in trials],
            **clipped,
            customdata=[t.number for t in trials],
        )
        traces.append(trace)
    return traces


def _text(data: ReportData, trial: Trial) -> str:
    number, how, *cells = _row(data, trial)
    if (memory := memory_bytes(trial)) is not None:
        cells.append(f"{bytes_text(memory)} of memory")
    return hover(f"trial {number}, {how}", *(text for text in cells if text != NOTHING))


def _table(data: ReportData, trials: Sequence[Trial]) -> Table:
    heads = ("trial", "outcome", "change", "score", "throughput", "p99 latency")
    return Table(heads, tuple(_row(data, t) for t in trials))


def _row(data: ReportData, trial: Trial) -> tuple[str, ...]:
    point = judged_point(trial)
    return (
        str(trial.number),
        TrialMarker.of(trial).words,
        change_text(data, trial.candidate),
        score_text(data, trial.score.value if trial.score else None),
        NOTHING if point is None else rate_text(point.measurement.throughput_infer_per_s),
        p99_of(point),
    )


def _score(trial: Trial) -> float:
    """The score; 0 without one, so that the trial is drawn on the axis."""
    return trial.score.value if trial.score else 0.0
