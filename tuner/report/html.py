"""The report of a run as one HTML file that needs nothing from outside."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuner.measurement.measurement import Measurement
from tuner.report.charts.chart import Chart, Outcome, Table, outcome_of
from tuner.report.charts.search import why_no_importance
from tuner.report.charts.sections import by_section
from tuner.report.data import ReportData
from tuner.report.next_steps import next_steps, repeat_commands
from tuner.report.page import Tone, rendered
from tuner.report.quantities import (
    NOTHING,
    latency_text,
    load_text,
    rate_text,
    seconds_text,
    verdict_text,
)
from tuner.report.selection import measured_again, simpler_note
from tuner.report.sentence import (
    HEADLINES,
    bottleneck_sentences,
    change_text,
    config_text,
    overload_sentences,
    predicted_text,
    score_axis,
    score_text,
    soak_sentences,
    verdict_sentence,
)
from tuner.report.side import by_load, judged_point
from tuner.report.tables import (
    comparison,
    count_of_refused,
    ending,
    environment,
    noise_sentences,
    p99_of,
    rejections,
    simplification,
    trial_seconds,
    trials_by_state,
)
from tuner.run.result_schema import SCHEMA_VERSION
from tuner.run.status import Status
from tuner.score.trial import Trial
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


#: Every other status is bad.
_TONES = {
    Status.IMPROVED: Tone.GOOD,
    Status.KEPT: Tone.GOOD,
    Status.UNCONFIRMED: Tone.UNSURE,
    Status.INTERRUPTED: Tone.UNSURE,
}


def render(data: ReportData) -> str:
    """The whole page."""
    charts = by_section(data)
    present = {"verdict", "environment", *_filled(charts, data)}
    words = {
        **_words(data),
        "charts": charts,
        "sections": [(name, title) for name, title in _SECTIONS.items() if name in present],
    }
    shown = [chart for group in charts.values() for chart in group]
    return rendered("report.html.j2", shown, _TONES.get(data.status, Tone.BAD), words)


def _filled(charts: Mapping[str, Sequence[Chart]], data: ReportData) -> Iterable[str]:
    yield from (name for name in ("load", "request-time", "resources") if charts[name])
    if data.trials:
        yield from ("why", "search")
    if data.overload is not None:
        yield "overload"


def _words(data: ReportData) -> dict[str, Any]:
    """Everything the template shows that is not a chart."""
    outcomes = list(dict.fromkeys(ending(t) for t in data.trials))
    return {
        "data": data,
        "model": data.model,
        "kind": "run",
        "run_id": data.run_id,
        "schema_version": SCHEMA_VERSION,
        "headline": HEADLINES[data.status],
        "sentence": verdict_sentence(data),
        "subject": "current config" if data.subject is data.current else data.best_name,
        "comparison": comparison(data),
        "measured_again": measured_again(data),
        "simpler_note": simpler_note(data),
        "overload_sentences": overload_sentences(data),
        "soak_sentences": soak_sentences(data),
        "bottleneck_sentences": bottleneck_sentences(data),
        "warnings": _warnings(data),
        "diff": [(_diff_kind(line), line) for line in data.diff.splitlines()],
        "next_steps": next_steps(data),
        "simplification": simplification(data),
        "why_no_importance": why_no_importance(data),
        "by_state": trials_by_state(data),
        "noise": noise_sentences(data),
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


def _failures(data: ReportData) -> list[tuple[str, list[int]]]:
    """Each reason for a failure with the trials it applies to, the most frequent first."""
    found: dict[str, list[int]] = defaultdict(list)
    for trial in data.failed:
        found[trial.reason or "no reason was given"].append(trial.number)
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[1]))


def _trial(data: ReportData, trial: Trial) -> dict[str, Any]:
    judged = judged_point(trial)
    bound = "at best " if outcome_of(trial) is Outcome.PRUNED else ""
    score = score_text(data, trial.score.value if trial.score else None)
    seconds = trial_seconds(trial)
    return {
        "number": trial.number,
        "outcome": ending(trial),
        "change": change_text(data, trial.candidate),
        "config": config_text(trial.candidate),
        "reason": trial.reason,
        "predicted": predicted_text(data, trial.predicted) if trial.predicted else "",
        "score": f"{bound}{score}",
        "score_value": f"{trial.score.value:.6g}" if trial.score else "",
        "p99_us": f"{judged.limiting.p99_latency_us:.0f}" if judged else "",
        "seconds": f"{seconds:.2f}",
        "p99": p99_of(judged),
        "refused": count_of_refused(judged),
        "deployment": trial.deployment or "",
        "time": seconds_text(seconds),
        "points": _points(trial),
    }


def _points(trial: Trial) -> Table:
    """The loads of one trial."""
    rows = []
    for point in by_load(trial.points):
        m = point.measurement
        open_slos = [s for s in point.slo if s.verdict is not Verdict.PASS]
        missed = "; ".join(f"{s.expression} {verdict_text(s)}" for s in open_slos)
        own = point.limiting
        times = (own.p50_latency_us, own.p90_latency_us, own.p95_latency_us)
        rows.append(
            (
                load_text(m.load),
                rate_text(m.throughput_infer_per_s),
                *(latency_text(t) for t in times),
                p99_of(point),
                count_of_refused(point),
                _starts(m),
                missed or "all met",
            )
        )
    heads = ("load", "throughput", "p50", "p90", "p95", "p99", "refused", "starts", "SLOs")
    return Table(heads, tuple(rows))


def _starts(measurement: Measurement) -> str:
    """The lowest and highest throughput of a closed loop's starts, which may differ in mode."""
    rates = [start.throughput_infer_per_s for start in measurement.restarts]
    return f"{rate_text(min(rates))} to {rate_text(max(rates))}" if rates else NOTHING
