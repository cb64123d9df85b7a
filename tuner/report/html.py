"""The report as one HTML file that needs nothing from outside."""

from __future__ import annotations

import base64
import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from tuner import __version__
from tuner.load.measurement import Measurement
from tuner.report.charts import latency, overload, search
from tuner.report.charts import resources as resource_charts
from tuner.report.charts.chart import Chart, Outcome, Table, outcome_of
from tuner.report.data import ReportData, by_load, judged_point
from tuner.report.next_steps import next_steps, repeat_commands
from tuner.report.quantities import (
    NOTHING,
    VERDICTS,
    count_text,
    latency_text,
    margin_text,
    metric_text,
    rate_text,
    seconds_text,
)
from tuner.report.selection import measured_again
from tuner.report.sentence import (
    HEADLINES,
    change_text,
    config_text,
    overload_sentences,
    score_axis,
    score_text,
    verdict_sentence,
)
from tuner.report.tables import (
    comparison,
    count_of_refused,
    environment,
    rejections,
    simplification,
)
from tuner.run.trial import Trial, TrialState
from tuner.score.verdict import Verdict

_SECTIONS = {
    "verdict": "Verdict",
    "load": "Load",
    "request-time": "Time",
    "why": "Why",
    "search": "Search",
    "resources": "Cache and GPU",
    "overload": "Overload",
    "environment": "Environment",
}


def render(data: ReportData) -> str:
    """The whole page. Everything that came from outside is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment_ = Environment(
        loader=PackageLoader("tuner.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    charts = _charts(data)
    drawn = {c.name: c.figure for group in charts.values() for c in group}
    present = {"verdict", "environment", *_filled(charts, data)}
    template = environment_.get_template("report.html.j2")
    return template.render(
        **_words(data),
        load_charts=charts["load"],
        time_charts=charts["request-time"],
        importance=next(iter(charts["importance"]), None),
        slices=charts["slices"],
        history=next(iter(charts["history"]), None),
        wall_time=next(iter(charts["wall_time"]), None),
        resource_charts=charts["resources"],
        overload=next(iter(charts["overload"]), None),
        sections=[(name, title) for name, title in _SECTIONS.items() if name in present],
        css=Markup(_asset("report.css")),  # noqa: S704  our own file
        js=Markup(_asset("report.js")),  # noqa: S704  our own file
        figures=Markup(script_json(drawn)),  # noqa: S704  escaped by script_json
        plotly=plotly_packed(),
    )


def _charts(data: ReportData) -> dict[str, list[Chart]]:
    return {
        "load": [*latency.curves(data), *_given(latency.front(data))],
        "request-time": _given(latency.latency_parts(data), latency.batches(data)),
        "importance": _given(search.importances(data)),
        "slices": list(search.slices(data)),
        "history": _given(search.history(data)),
        "wall_time": _given(search.wall_time(data)),
        "resources": _given(resource_charts.cache(data), resource_charts.gpu(data)),
        "overload": _given(overload.over_time(data)),
    }


def _given(*charts: Chart | None) -> list[Chart]:
    return [chart for chart in charts if chart is not None]


def _filled(charts: Mapping[str, Sequence[Chart]], data: ReportData) -> Iterable[str]:
    yield from (name for name in ("load", "request-time", "resources") if charts[name])
    if data.trials:
        yield from ("why", "search")
    if data.overload is not None:
        yield "overload"


def _words(data: ReportData) -> dict[str, Any]:
    """Everything the template shows that is not a chart."""
    outcomes = list(dict.fromkeys(_outcome(t) for t in data.trials))
    return {
        "data": data,
        "version": __version__,
        "headline": HEADLINES[data.status],
        "sentence": verdict_sentence(data),
        "subject": "current config" if data.subject is data.current else data.best_name,
        "verdicts": VERDICTS,
        "metric_text": metric_text,
        "margin_text": margin_text,
        "comparison": comparison(data),
        "measured_again": measured_again(data),
        "overload_sentences": overload_sentences(data),
        "warnings": _warnings(data),
        "diff": [(_diff_kind(line), line) for line in data.diff.splitlines()],
        "next_steps": next_steps(data),
        "simplification": simplification(data),
        "why_no_importance": search.why_no_importance(data),
        "counts": _counts(data),
        "failures": _failures(data),
        "rejections": rejections(data),
        "outcomes": outcomes,
        "score_title": score_axis(data)[0].split(" (")[0],
        "trials": [_trial(data, t) for t in data.trials],
        "environment": environment(data),
        "commands": repeat_commands(data),
    }


def _warnings(data: ReportData) -> list[str]:
    shown = (side for side in (data.current, data.best) if side and side.judged)
    lines = (line for side in shown if side.judged for line in side.judged.measurement.warnings)
    return list(dict.fromkeys(lines))


def _diff_kind(line: str) -> str:
    if line.startswith(("---", "+++")):
        return "file"
    return {"+": "added", "-": "removed", "@": "place"}.get(line[:1], "same")


def _counts(data: ReportData) -> str:
    states = [
        f"{sum(t.state is state for t in data.trials)} {word}"
        for state, word in (
            (TrialState.MEASURED, "measured in full"),
            (TrialState.PRUNED, "given up early"),
            (TrialState.FAILED, "failed"),
        )
    ]
    return f"{count_text(len(data.trials), 'trial')}: {', '.join(states)}."


def _failures(data: ReportData) -> list[tuple[str, list[int]]]:
    """Reasons with the trials that failed for them, the most frequent first."""
    found: dict[str, list[int]] = defaultdict(list)
    for trial in data.failed:
        found[trial.reason or "no reason was given"].append(trial.number)
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[1]))


def _outcome(trial: Trial) -> str:
    return "failed" if trial.state is TrialState.FAILED else outcome_of(trial).value


def _trial(data: ReportData, trial: Trial) -> dict[str, Any]:
    judged = judged_point(trial)
    time = trial.time
    total = time.searching_s + time.deploying_s + time.measuring_s + time.other_s
    bound = "at best " if outcome_of(trial) is Outcome.PRUNED else ""
    score = score_text(data, trial.score.value if trial.score else None)
    return {
        "number": trial.number,
        "outcome": _outcome(trial),
        "change": change_text(data, trial.candidate),
        "config": config_text(trial.candidate),
        "reason": trial.reason,
        "score": f"{bound}{score}",
        "p99": latency_text(judged.measurement.p99_latency_us if judged else None),
        "refused": count_of_refused(judged),
        "deployment": trial.deployment or "",
        "time": seconds_text(total),
        "points": _points(trial),
    }


def _points(trial: Trial) -> Table:
    """The loads of one trial."""
    rows = []
    for point in by_load(trial.points):
        m = point.measurement
        open_slos = [s for s in point.slo if s.verdict is not Verdict.PASS]
        missed = "; ".join(f"{s.expression} {VERDICTS[s.verdict]}" for s in open_slos)
        times = (m.p50_latency_us, m.p90_latency_us, m.p95_latency_us, m.p99_latency_us)
        rows.append(
            (
                str(m.load),
                rate_text(m.throughput_infer_per_s),
                *(latency_text(t) for t in times),
                count_of_refused(point),
                _starts(m),
                missed or "all met",
            )
        )
    heads = ("load", "throughput", "p50", "p90", "p95", "p99", "refused", "starts", "SLOs")
    return Table(heads, tuple(rows))


def _starts(measurement: Measurement) -> str:
    """The lowest and highest throughput of a closed loop's starts, which have modes."""
    rates = [start.throughput_infer_per_s for start in measurement.restarts]
    return f"{rate_text(min(rates))} to {rate_text(max(rates))}" if rates else NOTHING


def script_json(value: object) -> str:
    """JSON that may stand inside a script element: no text can end it or open a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def plotly_packed() -> str:
    """plotly.js, gzipped, in base64: a third of its size, and it does not hold up the page."""
    from plotly.offline import get_plotlyjs

    packed = gzip.compress(get_plotlyjs().encode(), compresslevel=6, mtime=0)
    return base64.b64encode(packed).decode()


def _asset(name: str) -> str:
    return (resources.files("tuner.report") / "assets" / name).read_text(encoding="utf-8")
