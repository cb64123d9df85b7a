"""Every trial as a point: by its number, by throughput and latency, by the value of a field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from tuner.report.analysis import (
    FEWEST_TRIALS,
    importance,
    incumbent,
    latency_slos,
    level_order,
    pareto,
    value_text,
    varied_knobs,
)
from tuner.report.blocks import Chart, Table
from tuner.report.charts.chart import (
    GREEN,
    MS,
    RED,
    Outcome,
    axis,
    bound_lines,
    hover,
    latency_axis,
    line,
    outcome_of,
    scatter,
    sides,
)
from tuner.report.data import ReportData
from tuner.report.quantities import NOTHING, rate_text
from tuner.report.sentence import change_text, score_axis, score_text
from tuner.report.side import judged_point
from tuner.report.tables import ending, p99_of
from tuner.score.trial import Trial
from tuner.space.parameters import Knob

#: With more values than this only some have their label in a slice.
MOST_LABELS = 10
#: Fields shown as slices, the most important first.
MOST_SLICES = 6
_CLICK = "Click a point to see the trial."


def history(data: ReportData) -> Chart | None:
    """Every score by trial, with the best config so far."""
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
    points = _by_outcome(data, scored, lambda t: t.number, lambda t: _score(t) * factor)
    traces = [*points, *_failed(data), best]
    early = "A trial that was stopped early is drawn at its best possible score."
    return Chart(
        name="history",
        title="Scores by trial",
        note=f"{_which_is_current(data)}{early} {_CLICK}",
        figure={"data": traces, "layout": {"xaxis": x_axis, "yaxis": axis(title)}},
        table=_table(data, scored),
    )


def front(data: ReportData) -> Chart | None:
    """Every trial with a measurement by throughput and latency, and the Pareto front."""
    latency, slos = next(iter(latency_slos(data).items()))
    scored = [t for t in data.trials if t.score is not None]
    found = {t.number: p for t in scored if (p := judged_point(t)) and latency.is_known(p)}
    if not found:
        return None
    shown = [t for t in scored if t.number in found]
    values = [latency.of(p) * MS for p in found.values()]
    y_axis, edge = latency_axis(f"{latency} (ms)", values, slos)

    def rate(trial: Trial) -> float:
        return found[trial.number].measurement.throughput_infer_per_s

    def time(trial: Trial) -> float:
        return min(latency.of(found[trial.number]) * MS, edge)

    best = [t for t in pareto(data, latency) if time(t) < edge]
    traces = []
    if len(best) > 1:
        x, y = [*map(rate, best)], [*map(time, best)]
        traces.append(line("Pareto front", x, y, GREEN, shape="hv"))
    traces += _by_outcome(data, shown, rate, time)
    for name, color, side in sides(data):
        point = side.judged
        if point is not None and latency.is_known(point):
            served = [point.measurement.throughput_infer_per_s]
            ring = scatter(
                name, served, [min(latency.of(point) * MS, edge)], color=color, text=[hover(name)],
                symbol="circle-open", size=17,
            )  # fmt: skip
            traces.append(ring)
    layout: dict[str, Any] = {"xaxis": axis("throughput (infer/s)"), "yaxis": y_axis}
    bound_lines(layout, slos)
    beyond = " Points at the upper edge are beyond it." if max(values) > edge else ""
    return Chart(
        name="pareto",
        title="All measured configs",
        note="One point per trial, at the load that its score is for. No config beats those on the "
        f"line in both directions.{beyond} {_CLICK}",
        figure={"data": traces, "layout": layout},
        table=_table(data, shown),
    )


def slices(data: ReportData) -> tuple[Chart, ...]:
    """The score over the values of each of the most important fields."""
    if len(data.scored) < FEWEST_TRIALS:
        return ()
    knobs = [i.knob for i in importance(data)] or list(varied_knobs(data))
    return tuple(_slice(data, knob, n) for n, knob in enumerate(knobs[:MOST_SLICES]))


def _slice(data: ReportData, knob: Knob, index: int) -> Chart:
    name, (title, factor) = data.manifest.current.title(knob), score_axis(data)
    values = sorted((t.candidate.values.get(knob) for t in data.scored), key=level_order)
    levels: dict[str, list[Trial]] = {value_text(knob, value): [] for value in values}
    for trial in data.scored:
        levels[value_text(knob, trial.candidate.values.get(knob))].append(trial)
    label = {t.number: escape(level, quote=False) for level, own in levels.items() for t in own}
    x_axis: dict[str, Any] = {
        "automargin": True,
        "type": "category",
        "categoryorder": "array",
        "categoryarray": [escape(level, quote=False) for level in levels],
    }
    if len(levels) > MOST_LABELS:
        x_axis |= {"nticks": MOST_LABELS // 2, "tickangle": 0}
    layout = {
        "xaxis": x_axis,
        "yaxis": axis(title),
        "height": 270,
        "margin": {"l": 56, "r": 12, "t": 8, "b": 24},
        "showlegend": False,
    }
    rows = []
    for level, own in levels.items():
        met = [_score(t) for t in own if t.score and t.score.feasible]
        best = (max if data.maximizes else min)(met, default=None)
        rows.append((level, str(len(own)), str(len(met)), score_text(data, best)))
    points = _by_outcome(data, data.scored, lambda t: label[t.number], lambda t: _score(t) * factor)
    return Chart(
        name=f"slice-{index}",
        title=name,
        note="",
        figure={"data": points, "layout": layout},
        table=Table((name, "trials", "meet the SLOs", "best score"), tuple(rows)),
        small=True,
    )


def _by_outcome(
    data: ReportData,
    trials: Sequence[Trial],
    x: Callable[[Trial], object],
    y: Callable[[Trial], float],
) -> list[dict[str, Any]]:
    """The trials as points, one trace an outcome."""
    groups = [(o, [t for t in trials if outcome_of(t) is o]) for o in Outcome]
    return [
        scatter(
            outcome.value,
            [x(t) for t in members],
            [y(t) for t in members],
            color=outcome.color,
            symbol=outcome.symbol,
            text=[_text(data, t) for t in members],
            customdata=[t.number for t in members],
        )
        for outcome, members in groups
        if members
    ]


def _failed(data: ReportData) -> list[dict[str, Any]]:
    """Trials without a score, on the axis."""
    if not data.failed:
        return []
    numbers = [t.number for t in data.failed]
    text = [_text(data, t) for t in data.failed]
    return [
        scatter(
            "failed", numbers, [0.0] * len(numbers), color=RED, symbol="triangle-up-open",
            cliponaxis=False, text=text, customdata=numbers,
        )
    ]  # fmt: skip


def _text(data: ReportData, trial: Trial) -> str:
    number, how, *told = _row(data, trial)
    return hover(f"trial {number}, {how}", *(text for text in told if text != NOTHING))


def _table(data: ReportData, trials: Sequence[Trial]) -> Table:
    heads = ("trial", "outcome", "change", "score", "throughput", "p99 latency")
    return Table(heads, tuple(_row(data, t) for t in trials))


def _row(data: ReportData, trial: Trial) -> tuple[str, ...]:
    point = judged_point(trial)
    return (
        str(trial.number),
        ending(trial),
        change_text(data, trial.candidate),
        score_text(data, trial.score.value if trial.score else None),
        NOTHING if point is None else rate_text(point.measurement.throughput_infer_per_s),
        p99_of(point),
    )


def _score(trial: Trial) -> float:
    assert trial.score is not None
    return trial.score.value


def _which_is_current(data: ReportData) -> str:
    if data.current is None or data.current.trial is None:
        return ""
    return f"Trial {data.current.trial} is the current config. "
