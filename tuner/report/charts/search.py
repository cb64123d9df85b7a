"""Charts of the search: its history, what mattered, where the wall time went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from textwrap import wrap
from typing import Any

from tuner.report.analysis import (
    FEWEST_TRIALS,
    importance,
    incumbent,
    level_order,
    level_text,
    settings,
    varied_fields,
)
from tuner.report.charts.chart import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    Chart,
    Outcome,
    Table,
    axis,
    bar,
    hover,
    line,
    outcome_of,
    scatter,
    trial_axis,
)
from tuner.report.data import ReportData
from tuner.report.quantities import seconds_text, share_text
from tuner.report.sentence import change_text, score_axis, score_text
from tuner.score.trial import Trial

#: With more values than this only some have their label in a slice.
MOST_LABELS = 10
#: Fields shown as slices, the most important first.
MOST_SLICES = 6


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
    layout = {"xaxis": trial_axis(data), "yaxis": axis(title)}
    rows = tuple(
        (
            str(t.number),
            outcome_of(t).value,
            score_text(data, t.score.value),
            change_text(data, t.candidate),
        )
        for t in scored
        if t.score
    )
    return Chart(
        name="history",
        title="Scores by trial",
        note=f"{_which_is_current(data)}A trial out of the race is drawn at its best "
        "possible score. Click a point to see the trial.",
        figure={
            "data": [*_scores(data, scored, lambda t: t.number), *_failures(data), best],
            "layout": layout,
        },
        table=Table(("trial", "outcome", "score", "change"), rows),
    )


def _which_is_current(data: ReportData) -> str:
    if data.current is None or data.current.trial is None:
        return ""
    return f"Trial {data.current.trial} is the current config. "


def _scores(
    data: ReportData, trials: Sequence[Trial], x: Callable[[Trial], object]
) -> list[dict[str, Any]]:
    """Scores over ``x``, one trace an outcome."""
    _, factor = score_axis(data)
    traces = []
    for outcome in Outcome:
        members = [t for t in trials if outcome_of(t) is outcome]
        if members:
            traces.append(
                scatter(
                    outcome.value,
                    [x(t) for t in members],
                    [t.score.value * factor for t in members if t.score],
                    color=outcome.color,
                    symbol=outcome.symbol,
                    text=[_trial_text(data, t) for t in members],
                    customdata=[t.number for t in members],
                )
            )
    return traces


def _failures(data: ReportData) -> list[dict[str, Any]]:
    """Trials without a score, on the axis."""
    if not data.failed:
        return []
    return [
        scatter(
            "failed",
            [t.number for t in data.failed],
            [0.0] * len(data.failed),
            color=RED,
            symbol="triangle-up-open",
            cliponaxis=False,
            text=[
                hover(f"trial {t.number}, failed", change_text(data, t.candidate), *_reason(t))
                for t in data.failed
            ],
            customdata=[t.number for t in data.failed],
        )
    ]


def _reason(trial: Trial) -> list[str]:
    """Why it failed, in lines of a hover label; the full text is in the table of trials."""
    return wrap(trial.reason or "", 70, max_lines=5, placeholder=" ...")


def _trial_text(data: ReportData, trial: Trial) -> str:
    return hover(
        f"trial {trial.number}, {outcome_of(trial).value}",
        score_text(data, trial.score.value if trial.score else None),
        change_text(data, trial.candidate),
    )


def importances(data: ReportData) -> Chart | None:
    """How much of the score each field explains; None if that is not known."""
    found = importance(data)
    if not found:
        return None
    shares = [100 * i.share for i in found]
    trace = bar(
        "importance",
        shares,
        [escape(i.path, quote=False) for i in found],
        BLUE,
        orientation="h",
        hovertemplate="%{y}: %{x:.3g} %<extra></extra>",
    )
    layout: dict[str, Any] = {
        "xaxis": {
            **axis("share of the rank variance of the score (%)"),
            "range": [0, 102],
            "dtick": 20,
        },
        "yaxis": {"automargin": True, "autorange": "reversed"},
        "height": 130 + 34 * len(found),
        "showlegend": False,
    }
    rows = tuple((i.path, share_text(i.share), str(i.levels)) for i in found)
    return Chart(
        name="importance",
        title="Which fields matter",
        note=f"Kruskal-Wallis effect size over {len(data.scored)} scored trials. The search "
        "changes several fields at once and favours good regions, so this is a hint, not a proof.",
        figure={"data": [trace], "layout": layout},
        table=Table(("field", "share", "values or groups compared"), rows),
    )


def why_no_importance(data: ReportData) -> str:
    """Why there is no importance chart, in a sentence."""
    if len(data.scored) < FEWEST_TRIALS:
        return (
            f"Which fields matter is not shown: that takes at least {FEWEST_TRIALS} scored trials, "
            f"and there are {len(data.scored)}."
        )
    return "Which fields matter is not shown: no field, or no score, varied among the trials."


def slices(data: ReportData) -> tuple[Chart, ...]:
    """The score over the values of each of the most important fields."""
    if len(data.scored) < FEWEST_TRIALS:
        return ()
    paths = [i.path for i in importance(data)] or list(varied_fields(data))
    return tuple(_slice(data, path, n) for n, path in enumerate(paths[:MOST_SLICES]))


def _slice(data: ReportData, path: str, index: int) -> Chart:
    title, _ = score_axis(data)
    values = [settings(t).get(path) for t in data.scored]
    levels = list(dict.fromkeys(level_text(v) for v in sorted(values, key=level_order)))
    order: dict[str, Any] = {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": [*map(_label, levels)],
    }
    if len(levels) > MOST_LABELS:
        order |= {"nticks": MOST_LABELS // 2, "tickangle": 0}
    layout = {
        "xaxis": {"automargin": True, **order},
        "yaxis": axis(title),
        "height": 270,
        "margin": {"l": 56, "r": 12, "t": 8, "b": 24},
        "showlegend": False,
    }
    traces = _scores(data, data.scored, lambda t: _label(level_text(settings(t).get(path))))
    rows = tuple(_slice_row(data, path, level) for level in levels)
    return Chart(
        name=f"slice-{index}",
        title=path,
        note="",
        figure={"data": traces, "layout": layout},
        table=Table((path, "trials", "meet the SLOs", "best score"), rows),
        small=True,
    )


def _label(level: str) -> str:
    """A level on an axis, where plotly would read markup in it."""
    return escape(level, quote=False)


def _slice_row(data: ReportData, path: str, level: str) -> tuple[str, ...]:
    trials = [t for t in data.scored if level_text(settings(t).get(path)) == level]
    scores = [t.score.value for t in trials if t.score and t.score.feasible]
    best = (max(scores) if data.maximizes else min(scores)) if scores else None
    return level, str(len(trials)), str(len(scores)), score_text(data, best)


_PHASE_COLORS = {
    "measuring_s": BLUE,
    "deploying_s": ORANGE,
    "searching_s": GREEN,
    "waiting_s": SKY,
    "starting_s": PURPLE,
    "writing_s": RED,
}


def wall_time(data: ReportData) -> Chart | None:
    """Every second of the run by phase."""
    if data.wall_s <= 0:
        return None
    traces = [
        bar(
            phase_name(phase),
            [seconds],
            ["run"],
            _PHASE_COLORS.get(phase, GREY),
            orientation="h",
            hovertemplate=f"{phase_name(phase)} %{{x:.1f}} s<extra></extra>",
        )
        for phase, seconds in data.time.items()
    ]
    layout = {
        "barmode": "stack",
        "xaxis": axis("seconds"),
        "yaxis": {"visible": False},
        "height": 180,
    }
    rows = [
        (phase_name(p), seconds_text(s), share_text(s / data.wall_s)) for p, s in data.time.items()
    ]
    rows.append(("all", seconds_text(data.wall_s), "100 %"))
    return Chart(
        name="time",
        title="Where the wall time went",
        note=f"{seconds_text(data.wall_s)} in all.",
        figure={"data": traces, "layout": layout},
        table=Table(("phase", "time", "share"), tuple(rows)),
    )


def phase_name(phase: str) -> str:
    return phase.removesuffix("_s").replace("_", " ")
