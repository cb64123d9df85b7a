"""The report of a check: HTML and Markdown for people, JUnit XML for pipelines."""

from __future__ import annotations

import shlex
from pathlib import Path
from statistics import geometric_mean

from tuner.report import html, markdown
from tuner.report.blocks import Document, Fold, Sentence, Steps, Table, Tile, Tiles, Tone, filled
from tuner.report.charts.trend import ratio_text, trend, trend_chart
from tuner.report.junit import (
    add_case,
    add_output,
    add_problem,
    add_slo,
    new_suite,
)
from tuner.report.junit import document as junit_document
from tuner.report.quantities import NOTHING, count_text, metric_text, seconds_text, share_text
from tuner.report.tables import slo_table
from tuner.report.tiles import slo_tile
from tuner.run.checks import CheckFacts, read_check
from tuner.run.status import CheckStatus
from tuner.run.writing import write_text
from tuner.score.judge import Verdict
from tuner.spec.units import digits

HEADLINES = {
    CheckStatus.FINE: "as good as the accepted result",
    CheckStatus.WORSE: "worse than the accepted result, but within the limits",
    CheckStatus.ACCEPTED: "accepted: later checks are compared with this result",
    CheckStatus.MISSED: "an SLO is missed",
    CheckStatus.INCONCLUSIVE: "inconclusive",
    CheckStatus.REGRESSION: "regression",
    CheckStatus.INTERRUPTED: "interrupted",
    CheckStatus.FAILED: "failed",
}


#: Every other status is bad.
_TONES = {
    CheckStatus.FINE: Tone.GOOD,
    CheckStatus.WORSE: Tone.UNSURE,
    CheckStatus.ACCEPTED: Tone.GOOD,
    CheckStatus.INCONCLUSIVE: Tone.UNSURE,
    CheckStatus.INTERRUPTED: Tone.UNSURE,
}


def render_check(directory: Path) -> list[Path]:
    """Renders a check from its `check.json`; each file replaces the old one whole.

    Raises:
        SpecError: The directory holds no check.
    """
    check = read_check(directory)
    shown = document(check)
    files = {
        "report.html": html.render(shown),
        "report.md": markdown.render(shown),
        "junit.xml": junit_of(check),
    }
    for name, text in files.items():
        write_text(directory / name, text)
    return [directory / name for name in files]


def document(check: CheckFacts) -> Document:
    """The whole report; a new section is one more block."""
    return Document(
        name=check.model,
        headline=HEADLINES[check.status],
        tone=_TONES.get(check.status, Tone.BAD),
        kind="check",
        run_id=check.run_id,
        started_at=check.checked_at,
        facts=(seconds_text(check.seconds), count_text(check.rounds, "round"), check.machine),
        blocks=filled(
            *map(Sentence, check.reasons),
            _tiles(check),
            Steps("What next", tuple(next_steps(check))),
            trend_chart(check) or trend(check),
            Fold("rounds", "Round by round", filled(_slos(check), _comparison(check))),
            Fold("environment", "Environment", (_environment(check),)),
        ),
    )


def _tiles(check: CheckFacts) -> Tiles:
    """What was compared, and how much of each SLO is used up."""
    found = []
    if check.values and min(check.values) > 0.0:
        value = metric_text(check.compared, geometric_mean(check.values))
        found.append(Tile(check.compared.replace("_", " "), value, f"mean of {_rounds(check)}"))
    if (ratio := check.ratio) is not None:
        change, low, high = (f"{r - 1.0:+.1%}" for r in (ratio.estimate, ratio.low, ratio.high))
        interval = f"{check.confidence:.0%} interval {low} to {high}"
        note = f"{interval}; a loss above {check.fail:.0%} fails"
        tone = _TONES.get(check.status, Tone.BAD)
        found.append(Tile("against the accepted result", change, note, tone))
    slos = [slo_tile(s.worst, ()) for s in check.slo if s.worst.metric]
    return Tiles((*found, *slos))


def _slos(check: CheckFacts) -> Table:
    rows = [(s.worst, [metric_text(s.worst.metric, v) for v in s.values], None) for s in check.slo]
    return slo_table(rows, check.load)


def _rounds(check: CheckFacts) -> str:
    return count_text(check.rounds, "round")


def _comparison(check: CheckFacts) -> Table | None:
    """The check beside the accepted result, or alone if there is nothing to compare with."""
    if not check.values:
        return None
    then = check.baseline
    now_column = _column(check, check.values, check.level, check.config_sha256)
    names = (f"{check.compared}, mean", "each round", "load that met the SLOs", "config")
    if then is None:
        return Table(("", "now"), tuple(zip(names, now_column, strict=True)))
    then_column = _column(check, then.values, then.level, then.config_sha256)
    rows = [
        *zip(names, now_column, then_column, strict=True),
        ("measured", check.checked_at[:10], then.accepted_at[:10]),
        ("ratio", ratio_text(check.ratio), ""),
    ]
    return Table(("", "now", "accepted"), tuple(rows), "Against the accepted result")


def _environment(check: CheckFacts) -> Table:
    """The place and subject of the check."""
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
    """What to do now: (reason, command) pairs."""
    spec = shlex.quote(check.spec_path)
    tune = ("look for a better config, and leave it as a proposal", f"tune run {spec} --no-write")
    accept = ("if this is intended, accept it", f"tune check {spec} --update-baseline")
    again = ("check again", f"tune check {spec}")
    if check.status in (CheckStatus.MISSED, CheckStatus.INCONCLUSIVE) and not check.rounds:
        return [("fix what is named above, then check again", f"tune check {spec}")]
    return {
        CheckStatus.FINE: [again],
        CheckStatus.WORSE: [again, accept],
        CheckStatus.ACCEPTED: [again],
        CheckStatus.MISSED: [tune],
        CheckStatus.INCONCLUSIVE: [accept] if _only_not_compared(check) else [again],
        CheckStatus.REGRESSION: [tune, accept],
        CheckStatus.INTERRUPTED: [again],
        CheckStatus.FAILED: [("check this machine", "tune doctor"), again],
    }[check.status]


def _only_not_compared(check: CheckFacts) -> bool:
    """Every SLO was met and all was measured: `--update-baseline` would have accepted it."""
    met = all(slo.worst.verdict is Verdict.PASS for slo in check.slo)
    return check.ratio is None and met and bool(check.values)


def junit_of(check: CheckFacts) -> str:
    """One case for each SLO, one for the comparison; what was not shown counts as a failure."""
    facts = {"run_id": check.run_id, "status": check.status.value}
    suite = new_suite(check.model, facts)
    for slo in check.slo:
        add_slo(suite, check.model, slo.worst)
    case = add_case(suite, check.model, "check", "regression")
    reasons = " ".join(check.reasons)
    broken = (CheckStatus.FAILED, CheckStatus.INTERRUPTED)
    failed = (CheckStatus.REGRESSION, CheckStatus.INCONCLUSIVE)
    if check.status in broken:
        add_problem(case, "error", check.status.value, reasons)
    elif check.status in failed or (check.status is CheckStatus.MISSED and not check.slo):
        add_problem(case, "failure", check.status.value, reasons)
    elif check.status is CheckStatus.MISSED:
        add_problem(case, "skipped", check.status.value, "an SLO is missed: see its own case")
    add_output(case, reasons)
    return junit_document(suite, check.seconds, check.checked_at)


def _column(
    check: CheckFacts, values: list[float], level: float | None, config: str
) -> tuple[str, ...]:
    mean = geometric_mean(values) if min(values) > 0.0 else None
    return (
        metric_text(check.compared, mean),
        ", ".join(metric_text(check.compared, value) for value in values),
        NOTHING if level is None else digits(level, 4),
        config[:8],
    )
