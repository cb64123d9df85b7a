"""All trials by throughput and latency, with the Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tuner.report.analysis import Latency, TrialPoint, pareto
from tuner.report.charts.chart import (
    GREEN,
    MS,
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
from tuner.report.charts.latency import latency_slos, sides
from tuner.report.data import ReportData
from tuner.report.quantities import latency_text, load_text, rate_text
from tuner.report.sentence import change_text, config_text
from tuner.report.side import Side, judged_point
from tuner.score.point import Point
from tuner.score.trial import TrialState

#: Trials that lost the race were overloaded. Those above this many times the highest value of the
#: others are drawn at the upper edge, or nothing else could be seen.
EDGE = 1.15


def front(data: ReportData) -> Chart | None:
    """Every trial with a measurement by throughput and latency, and the Pareto front."""
    latency, slos = next(iter(latency_slos(data).items()))
    judged = pareto(data, latency)
    if not judged:
        return None
    lost = [j for j in _given_up(data) if latency.is_known(j.point)]
    shown = [latency.of(j.point) * MS for j in judged] + [s.bound * MS for s in slos]
    edge = max(shown) * EDGE
    highest = [edge] if any(latency.of(j.point) * MS > max(shown) for j in lost) else []
    traces = [_front_line([j for j in judged if j.on_front], latency)]
    for outcome in Outcome:
        members = [j for j in (*judged, *lost) if outcome_of(j.trial) is outcome]
        if members:
            traces.append(_trials(members, outcome, latency, edge))
    traces += [ring for side in sides(data) if (ring := _ring(data, *side, latency))]
    layout: dict[str, Any] = {
        "xaxis": axis("throughput (infer/s)"),
        "yaxis": axis(f"{latency} (ms)", [*shown, *highest]),
    }
    bound_lines(layout, slos)
    edge_note = " Crosses at the upper edge are beyond it." if highest else ""
    return Chart(
        name="pareto",
        title="All measured configs",
        note="One point per trial, at the load that its score is for. No config beats those on the "
        f"line in both directions. Click a point to see the trial.{edge_note}",
        figure={"data": traces, "layout": layout},
        table=_table(data, [*judged, *lost], latency),
    )


def _given_up(data: ReportData) -> list[TrialPoint]:
    """Trials that lost to the incumbent, at the load where they did."""
    pruned = [t for t in data.trials if t.state is TrialState.PRUNED and t.score]
    return [TrialPoint(t, p, on_front=False) for t in pruned if (p := judged_point(t)) is not None]


def _front_line(members: Sequence[TrialPoint], latency: Latency) -> dict[str, Any]:
    x = [j.point.measurement.throughput_infer_per_s for j in members]
    return line("Pareto front", x, [latency.of(j.point) * MS for j in members], GREEN, shape="hv")


def _trials(
    members: Sequence[TrialPoint], outcome: Outcome, latency: Latency, edge: float
) -> dict[str, Any]:
    return scatter(
        outcome.value,
        [j.point.measurement.throughput_infer_per_s for j in members],
        [min(latency.of(j.point) * MS, edge) for j in members],
        color=outcome.color,
        symbol=outcome.symbol,
        text=[
            hover(
                f"trial {j.trial.number}, {outcome.value}",
                *config_text(j.trial.candidate),
                _summary(j.point, latency),
            )
            for j in members
        ],
        customdata=[j.trial.number for j in members],
    )


def _ring(
    data: ReportData, name: str, color: str, side: Side, latency: Latency
) -> dict[str, Any] | None:
    """Marks the current or the best config: around its trial, or where it was confirmed.

    A trial that only lost the race was overloaded, so the config is not shown there.
    """
    trial = next((t for t in data.trials if t.number == side.trial), None)
    if trial is not None and trial.state is TrialState.PRUNED and side.proofs:
        trial = None
    point = (None if trial is None else judged_point(trial)) or side.judged
    assert point is not None  # `sides` has only those that were measured
    if not latency.is_known(point):
        return None
    shown: dict[str, Any] = {} if trial is None else {"customdata": [trial.number]}
    ring = {"symbol": "circle-open", "size": 17, "color": color, "line": {"width": 3}}
    return scatter(
        name if trial else f"{name}, as confirmed",
        [point.measurement.throughput_infer_per_s],
        [latency.of(point) * MS],
        color=color,
        text=[hover(name, *config_text(side.candidate), _summary(point, latency))],
        marker=ring,
        **shown,
    )


def _summary(point: Point, latency: Latency) -> str:
    measurement = point.measurement
    rate = rate_text(measurement.throughput_infer_per_s)
    found = latency_text(latency.of(point))
    return f"{rate} at load {load_text(measurement.load)}, {latency} {found}"


def _table(data: ReportData, members: Sequence[TrialPoint], latency: Latency) -> Table:
    rows = tuple(_rows(data, members, latency))
    headers = ("trial", "change", "outcome", "throughput", str(latency), "on the front")
    return Table(headers, rows)


def _rows(
    data: ReportData, members: Sequence[TrialPoint], latency: Latency
) -> Iterator[tuple[str, ...]]:
    for j in members:
        yield (
            str(j.trial.number),
            change_text(data, j.trial.candidate),
            outcome_of(j.trial).value,
            rate_text(j.point.measurement.throughput_infer_per_s),
            latency_text(latency.of(j.point)),
            "yes" if j.on_front else "",
        )
