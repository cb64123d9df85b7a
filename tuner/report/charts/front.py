"""All trials by throughput and latency, with the Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tuner.report.analysis import TrialPoint, pareto, value
from tuner.report.charts.chart import (
    GREEN,
    Chart,
    Outcome,
    Table,
    axis,
    bound_lines,
    hover,
    line,
    outcome_of,
    scatter,
)
from tuner.report.charts.latency import MS, latency_slos, sides
from tuner.report.data import ReportData
from tuner.report.quantities import latency_text, load_text, rate_text
from tuner.report.sentence import change_text, config_text
from tuner.report.side import Side, judged_point
from tuner.run.trial import Point, TrialState

#: Trials given up early were overloaded; those beyond so many times what the others show are
#: drawn at the upper edge, or nothing else could be seen.
EDGE = 1.15


def front(data: ReportData) -> Chart | None:
    """Every trial with a measurement by throughput and latency, and the Pareto front."""
    metric, slos = next(iter(latency_slos(data).items()))
    judged = pareto(data, metric)
    if not judged:
        return None
    lost = _given_up(data)
    shown = [value(j.point, metric) * MS for j in judged] + [s.bound * MS for s in slos]
    edge = max(shown) * EDGE
    highest = [edge] if any(value(j.point, metric) * MS > max(shown) for j in lost) else []
    traces = [_front_line([j for j in judged if j.on_front], metric)]
    for outcome in Outcome:
        members = [j for j in (*judged, *lost) if outcome_of(j.trial) is outcome]
        if members:
            traces.append(_trials(members, outcome, metric, edge))
    traces += [_ring(data, *side, metric) for side in sides(data)]
    layout: dict[str, Any] = {
        "xaxis": axis("throughput (infer/s)"),
        "yaxis": axis(f"{metric} (ms)", [*shown, *highest]),
    }
    bound_lines(layout, slos, MS)
    edge_note = " Crosses at the upper edge are beyond it." if highest else ""
    return Chart(
        name="pareto",
        title="All measured configs",
        note="One point a trial, at the load its score stands for. No config beats those on the "
        f"line in both directions. Click a point to see the trial.{edge_note}",
        figure={"data": traces, "layout": layout},
        table=_table(data, [*judged, *lost], metric),
    )


def _given_up(data: ReportData) -> list[TrialPoint]:
    """Trials that lost to the incumbent, at the load where they did."""
    pruned = [t for t in data.trials if t.state is TrialState.PRUNED and t.score]
    return [TrialPoint(t, p, on_front=False) for t in pruned if (p := judged_point(t)) is not None]


def _front_line(members: Sequence[TrialPoint], metric: str) -> dict[str, Any]:
    x = [j.point.measurement.throughput_infer_per_s for j in members]
    return line("Pareto front", x, [value(j.point, metric) * MS for j in members], GREEN)


def _trials(
    members: Sequence[TrialPoint], outcome: Outcome, metric: str, edge: float
) -> dict[str, Any]:
    return scatter(
        outcome.value,
        [j.point.measurement.throughput_infer_per_s for j in members],
        [min(value(j.point, metric) * MS, edge) for j in members],
        color=outcome.color,
        symbol=outcome.symbol,
        text=[
            hover(
                f"trial {j.trial.number}, {outcome.value}",
                *config_text(j.trial.candidate),
                _summary(j.point, metric),
            )
            for j in members
        ],
        customdata=[j.trial.number for j in members],
    )


def _ring(data: ReportData, name: str, color: str, side: Side, metric: str) -> dict[str, Any]:
    """Marks the current or the best config: around its trial, or where it was confirmed.

    A trial that only lost the race was overloaded, which is no place to show a config at.
    """
    trial = next((t for t in data.trials if t.number == side.trial), None)
    if trial is not None and trial.state is TrialState.PRUNED and side.proofs:
        trial = None
    point = (None if trial is None else judged_point(trial)) or side.judged
    assert point is not None  # `sides` has only those that were measured
    shown: dict[str, Any] = {} if trial is None else {"customdata": [trial.number]}
    ring = {"symbol": "circle-open", "size": 17, "color": color, "line": {"width": 3}}
    return scatter(
        name if trial else f"{name}, as confirmed",
        [point.measurement.throughput_infer_per_s],
        [value(point, metric) * MS],
        color=color,
        text=[hover(name, *config_text(side.candidate), _summary(point, metric))],
        marker=ring,
        **shown,
    )


def _summary(point: Point, metric: str) -> str:
    measurement = point.measurement
    rate = rate_text(measurement.throughput_infer_per_s)
    latency = latency_text(value(point, metric))
    return f"{rate} at load {load_text(measurement.load)}, {metric} {latency}"


def _table(data: ReportData, members: Sequence[TrialPoint], metric: str) -> Table:
    rows = tuple(_rows(data, members, metric))
    headers = ("trial", "change", "outcome", "throughput", metric, "on the front")
    return Table(headers, rows)


def _rows(
    data: ReportData, members: Sequence[TrialPoint], metric: str
) -> Iterator[tuple[str, ...]]:
    for j in members:
        yield (
            str(j.trial.number),
            change_text(data, j.trial.candidate),
            outcome_of(j.trial).value,
            rate_text(j.point.measurement.throughput_infer_per_s),
            latency_text(value(j.point, metric)),
            "yes" if j.on_front else "",
        )
