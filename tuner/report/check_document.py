"""The report of a check: a document for people, and files for other programs.

The files are JUnit XML and OpenMetrics. Source: the specification of OpenMetrics 1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from tuner.record.checks import CheckFacts, HistoryRow, mean_of, read_check
from tuner.record.manifest import Choices, check_command, run_command
from tuner.record.status import CheckStatus
from tuner.report import ended, junit
from tuner.report.blocks import (
    Chart,
    Document,
    Fold,
    Sentence,
    Table,
    Tile,
    Tiles,
    Tone,
    filled,
)
from tuner.report.charts import BLUE, GREEN, ORANGE, RED, axis, hover, line, scatter
from tuner.report.ended import Ended, RequestsOf, SloRow
from tuner.report.quantities import NOTHING, metric_text, share_text
from tuner.report.render import write_report
from tuner.report.tables import rows_of, slo_tile
from tuner.score.judge import Verdict
from tuner.score.ratio import Ratio
from tuner.spec.metrics import METRICS, THROUGHPUT, Better, Metric
from tuner.spec.units import count_text, digits

#: Tone and words for each way in which a check ends.
HEADLINES = {
    CheckStatus.FINE: (Tone.GOOD, "as good as the accepted result"),
    CheckStatus.WORSE: (Tone.UNSURE, "worse than the accepted result, but within the limits"),
    CheckStatus.ACCEPTED: (Tone.GOOD, "accepted: later checks are compared with this result"),
    CheckStatus.MISSED: (Tone.BAD, "an SLO is missed"),
    CheckStatus.INCONCLUSIVE: (Tone.UNSURE, "inconclusive"),
    CheckStatus.REGRESSION: (Tone.BAD, "regression"),
    CheckStatus.INTERRUPTED: (Tone.UNSURE, "interrupted"),
    CheckStatus.FAILED: (Tone.BAD, "failed"),
}
_PASSED = (CheckStatus.FINE, CheckStatus.WORSE, CheckStatus.ACCEPTED)
#: Kinds of checks in the chart, each with its own shape and color.
_KINDS = {
    "passed": ("circle", BLUE),
    "inconclusive": ("diamond-open", ORANGE),
    "did not pass": ("x", RED),
}
#: Number of characters of a hash that distinguish the configs of a model.
_HASH = 8


def render_check(directory: Path) -> list[Path]:
    """Renders a check from its `check.json`; each file is the old one or the complete new one.

    Raises:
        SpecError: The directory is not a check.
    """
    check = read_check(directory)
    return write_report(directory, document(check), junit_of(check))


def document(check: CheckFacts) -> Document:
    """The whole report; each section is a block."""
    facts = ended_check(check)
    rounds = filled(ended.slo_table(facts), _comparison(check))
    rest = (
        *ended.request_tables(facts),
        trend_chart(check) or trend(check),
        Fold("rounds", "Round by round", rounds),
        Fold("environment", "Environment", (_environment(check),)),
    )
    return ended.document(facts, (*map(Sentence, check.reasons), _tiles(check)), rest)


def ended_check(check: CheckFacts) -> Ended:
    """The part of the report that runs have too."""
    tone, headline = HEADLINES[check.status]
    if check.status is CheckStatus.MISSED and not check.rounds:
        headline = "the server does not load the config"
    return Ended(
        kind="check",
        name=check.model,
        run_id=check.run_id,
        started_at=check.checked_at,
        took_s=check.seconds,
        status=check.status.value,
        tone=tone,
        headline=headline,
        facts=(count_text(check.rounds, "round"), check.machine),
        slo=tuple(SloRow(row.worst, tuple(row.values)) for row in check.slo),
        requests=(RequestsOf("", check.shapes, check.responses),),
        steps=next_steps(check),
        load=check.load,
    )


def _tiles(check: CheckFacts) -> Tiles:
    """The compared value, and how much of each SLO is used up."""
    tiles = []
    if (mean := mean_of(check.values)) is not None:
        rounds = count_text(check.rounds, "round")
        value = metric_text(check.compared, mean)
        tiles.append(Tile(check.compared.replace("_", " "), value, f"mean of {rounds}"))
    if (ratio := check.ratio) is not None:
        change, low, high = (f"{r - 1.0:+.1%}" for r in (ratio.estimate, ratio.low, ratio.high))
        interval = f"{check.confidence:.0%} interval {low} to {high}"
        note = f"{interval}; a loss above {check.fail:.0%} fails"
        tone, _ = HEADLINES[check.status]
        tiles.append(Tile("against the accepted result", change, note, tone))
    slos = [slo_tile(s.worst) for s in check.slo if s.worst.metric]
    return Tiles((*tiles, *slos))


def _comparison(check: CheckFacts) -> Table | None:
    """The check beside the accepted result, or alone if there is none to compare with."""
    if not check.values:
        return None
    now, then = _column(check, check.values, check.level, check.config_sha256), check.baseline
    if then is None:
        return Table(("", "now"), tuple(rows_of([now])))
    now |= {"measured": check.checked_at[:10], "ratio": ratio_text(check.ratio)}
    accepted = _column(check, then.values, then.level, then.config_sha256)
    accepted |= {"measured": then.accepted_at[:10], "ratio": ""}
    rows = tuple(rows_of([now, accepted]))
    return Table(("", "now", "accepted"), rows, "Against the accepted result")


def _environment(check: CheckFacts) -> Table:
    """Machine, programs, spec and config of the check."""
    facts = {
        "objective": check.objective,
        "spec": f"{check.spec_path} (sha256 {check.spec_sha256[:12]})",
        "config": f"sha256 {check.config_sha256[:12]}",
        "a loss that is reported": f"above {share_text(check.warn)}",
        "a loss that fails": f"above {share_text(check.fail)}",
        **({"accepted into": check.accepted} if check.accepted else {}),
        "fingerprint": check.fingerprint,
    }
    return Table(("fact", "value"), tuple(facts.items()))


def next_steps(check: CheckFacts) -> list[tuple[str, str]]:
    """Next steps: (reason, command) pairs."""
    command = partial(check_command, check.spec_path, check.options)
    proposal = run_command([check.spec_path], Choices(write=False), *check.options)
    tune = ("look for a better config, and leave it as a proposal", proposal)
    accept = ("if this is intended, accept it", command("--update-baseline"))
    again = ("check again", command())
    lost = check.credited is not None and check.credited.lost  # a lost soak is never accepted
    if check.status in (CheckStatus.MISSED, CheckStatus.INCONCLUSIVE) and not check.rounds:
        return [("fix the problem above, then check again", command())]
    return {
        CheckStatus.FINE: [again],
        CheckStatus.WORSE: [again, accept],
        CheckStatus.ACCEPTED: [again],
        CheckStatus.MISSED: [tune],
        CheckStatus.INCONCLUSIVE: [accept] if _only_not_compared(check) else [again],
        CheckStatus.REGRESSION: [tune] if lost else [tune, accept],
        CheckStatus.INTERRUPTED: [again],
        CheckStatus.FAILED: [("check this machine", "tune doctor"), again],
    }[check.status]


def _only_not_compared(check: CheckFacts) -> bool:
    """Whether every SLO was met in a complete check, so that `--update-baseline` accepts it."""
    met = all(slo.worst.verdict is Verdict.PASS for slo in check.slo)
    return check.ratio is None and met and bool(check.values)


def junit_of(check: CheckFacts) -> str:
    """One case per SLO, one for the comparison; a result that was not shown counts as a failure."""
    reasons, status = " ".join(check.reasons), check.status
    problem = None
    if status in (CheckStatus.FAILED, CheckStatus.INTERRUPTED):
        problem = ("error", status.value, reasons)
    elif status is CheckStatus.MISSED and check.slo:
        problem = ("skipped", status.value, "an SLO is missed: see its own case")
    elif status not in _PASSED:
        problem = ("failure", status.value, reasons)
    case = junit.case(check.model, "check", "regression", problem, reasons)
    return ended.suite(ended_check(check), case, {}, check.shapes)


_EXIT_CODE = "Exit code of the last check."


def open_metrics(check: CheckFacts) -> str:
    """Gauges without times: the node exporter, which reads no OpenMetrics, reads these too."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry, common = CollectorRegistry(), {"model": check.model, "spec": check.spec_path}

    def gauge(name: str, help_text: str, *values: tuple[dict[str, str], float | None]) -> None:
        labels = [*common, *(values[0][0] if values else ())]
        family = Gauge(f"tune_check_{name}", help_text, labels, registry=registry)
        for more, value in values:
            if value is not None:
                family.labels(**common, **more).set(value)

    started = datetime.fromisoformat(check.checked_at).timestamp()
    ended = [({"status": s.value}, float(s is check.status)) for s in CheckStatus]
    gauge("status", "1 for how the last check ended.", *ended)
    gauge("exit_code", _EXIT_CODE, ({}, check.exit_code))
    gauge("timestamp_seconds", "When the last check began, in Unix time.", ({}, started))
    value = ({"compared": check.compared}, mean_of(check.values))
    gauge("value", "What is compared, mean of the rounds, in its base unit.", value)
    bounds = ("estimate", "low", "high")
    ratios = [({"bound": b}, getattr(check.ratio, b, None)) for b in bounds]
    gauge("ratio", "Times better than the accepted result, with its interval.", *ratios)
    gauge("fail_ratio", "Ratio below which a loss fails.", ({}, 1.0 - check.fail))
    worst = [slo.worst for slo in check.slo]
    margins = [({"slo": w.expression, "stream": w.stream}, w.margin) for w in worst]
    gauge("slo_margin", "Share of the SLO's bound that is left, below 0: missed.", *margins)
    return generate_latest(registry).decode() + "# EOF\n"


def exit_code_metric(model: str, spec: str, exit_code: int) -> str:
    """The exit code only, for a check that ended before it wrote a `check.json`."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry, labels = CollectorRegistry(), {"model": model, "spec": spec}
    gauge = Gauge("tune_check_exit_code", _EXIT_CODE, [*labels], registry=registry)
    gauge.labels(**labels).set(exit_code)
    return generate_latest(registry).decode() + "# EOF\n"


def _column(
    check: CheckFacts, values: Sequence[float], level: float | None, config: str
) -> dict[str, str]:
    return {
        f"{check.compared}, mean": metric_text(check.compared, mean_of(values)),
        "each round": ", ".join(metric_text(check.compared, value) for value in values),
        "load that met the SLOs": NOTHING if level is None else digits(level, 4),
        "config": config[:_HASH],
    }


def trend(check: CheckFacts) -> Table | None:
    """The last checks as a table; None for the first check."""
    if len(check.history) < 2:
        return None
    headers = ("checked", check.compared, "ratio to accepted", "ended", "config")
    return Table(headers, tuple(_row(check, row) for row in check.history), "The last checks")


def ratio_text(ratio: Ratio | None) -> str:
    if ratio is None:
        return NOTHING
    return f"{ratio.estimate:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


def _row(check: CheckFacts, row: HistoryRow) -> tuple[str, ...]:
    return (
        row.checked_at[:16].replace("T", " "),
        metric_text(check.compared, row.value),
        ratio_text(row.ratio),
        row.status.value,
        row.config_sha256[:_HASH],
    )


def trend_chart(check: CheckFacts) -> Chart | None:
    """The compared value of each check; None unless two checks have one."""
    table = trend(check)
    rows = [row for row in check.history if row.value is not None]
    if table is None or len(rows) < 2:
        return None
    metric = METRICS.get(check.compared, THROUGHPUT)
    unit, factor = metric.unit.axis
    days = [row.checked_at[5:10] for row in rows]
    times = [row.checked_at[5:16].replace("T", "<br>") for row in rows]
    accepted = [_accepted(metric, row) for row in rows]
    limits = [None if a is None else _times(metric, a, 1.0 - check.fail) for a in accepted]
    traces = [
        *_steps("accepted result", GREEN, "solid", accepted, factor),
        *_steps(f"a loss of {share_text(check.fail)}", RED, "dash", limits, factor),
    ]
    for kind, (symbol, color) in _KINDS.items():
        members = [(i, row) for i, row in enumerate(rows) if _kind(row) == kind]
        if members:
            x, y = [i for i, _ in members], [(row.value or 0.0) * factor for _, row in members]
            bars = _bars([_interval(metric, row, factor) for _, row in members], y, color)
            text = [hover(*_row(check, row)) for _, row in members]
            traces.append(scatter(kind, x, y, color=color, symbol=symbol, text=text, error_y=bars))
    layout = {
        "xaxis": {
            "automargin": True,
            "tickvals": list(range(len(rows))),
            "ticktext": days if len({*days}) == len(days) else times,
            "range": [-0.5, len(rows) - 0.5],
            "showgrid": False,
            "zeroline": False,
        },
        "yaxis": {**axis(f"{check.compared} ({unit})"), "rangemode": "normal"},
        "height": 340,
    }
    return Chart(
        name="trend",
        title=f"{check.compared.capitalize()}, check by check",
        note="The mean of each check's rounds. Bars are the 95% interval of its ratio to the "
        "accepted result. The axis does not begin at 0.",
        figure={"data": traces, "layout": layout},
        table=table,
    )


def _times(metric: Metric, value: float, ratio: float) -> float:
    """The value that is ``ratio`` times as good."""
    return value * ratio if metric.better is Better.HIGHER else value / ratio


def _accepted(metric: Metric, row: HistoryRow) -> float | None:
    """The accepted value that a check was compared with; for the first accepted one, its own."""
    assert row.value is not None
    if row.ratio is not None:
        return _times(metric, row.value, 1.0 / row.ratio.estimate)
    return row.value if row.status is CheckStatus.ACCEPTED else None


def _steps(
    name: str, color: str, dash: str, levels: Sequence[float | None], factor: float
) -> list[dict[str, Any]]:
    """A level line at each check; empty if no check has one."""
    if not any(levels):
        return []
    x = [i + side for i in range(len(levels)) for side in (-0.5, 0.5)]
    y = [None if level is None else level * factor for level in levels for _ in range(2)]
    return [line(name, x, y, color, dash=dash)]


def _kind(row: HistoryRow) -> str:
    if row.status in _PASSED:
        return "passed"
    return "inconclusive" if row.status is CheckStatus.INCONCLUSIVE else "did not pass"


def _interval(metric: Metric, row: HistoryRow, factor: float) -> tuple[float, float]:
    """Lower and upper end of a bar; the value twice without a comparison."""
    accepted = _accepted(metric, row)
    if row.ratio is None or accepted is None:
        return (row.value or 0.0) * factor, (row.value or 0.0) * factor
    ends = [_times(metric, accepted, end) * factor for end in (row.ratio.low, row.ratio.high)]
    return min(ends), max(ends)


def _bars(
    ends: Sequence[tuple[float, float]], values: Sequence[float], color: str
) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, (_, high) in zip(values, ends, strict=True)],
        "arrayminus": [value - low for value, (low, _) in zip(values, ends, strict=True)],
        "color": color,
        "thickness": 1,
        "width": 4,
    }
