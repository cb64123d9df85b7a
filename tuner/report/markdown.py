"""The report as Markdown: for a pull request, a step summary, a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tuner.plain import plain, plain_lines
from tuner.report.charts.chart import Table
from tuner.report.charts.load_curve import load_curve
from tuner.report.data import ReportData
from tuner.report.next_steps import next_steps
from tuner.report.quantities import (
    NOTHING,
    POINT_ESTIMATES,
    VERDICTS,
    count_text,
    margin_text,
    metric_text,
    seconds_text,
)
from tuner.report.selection import measured_again, simpler_note
from tuner.report.sentence import (
    HEADLINES,
    bottleneck_sentences,
    change_text,
    overload_sentences,
    score_text,
    soak_sentences,
    verdict_sentence,
)
from tuner.report.tables import (
    comparison,
    count_of_refused,
    p99_of,
    rejections,
    simplification,
)
from tuner.score.verdict import SloResult

#: Trials shown, the best ones.
MOST_TRIALS = 10
#: Rejected measurements shown, the first ones.
MOST_REJECTED = 20

#: GitHub refuses a step's summary above 1 MiB; some is left to other tools of the step.
SUMMARY_LIMIT_BYTES = 900 * 1024


def render(data: ReportData) -> str:
    """The whole report. Text from outside cannot become markup."""
    parts = [
        f"## {escaped(data.model)}: {HEADLINES[data.status]}",
        escaped(verdict_sentence(data)),
        *[f"- {escaped(reason)}" for reason in data.reasons],
        *run_slo_lines(data),
        *[f"- {escaped(sentence)}" for sentence in soak_sentences(data)],
        *_load_curve_lines(data),
        *titled("In numbers", comparison(data)),
        *bottleneck_lines(data),
        *titled("Searched and measured again", measured_again(data)),
        *([escaped(note)] if (note := simpler_note(data)) else []),
        *titled_code("The change", data.diff, "diff"),
        *titled_code("Server flags it needs", "\n".join(data.server_args), ""),
        *titled("Field by field", simplification(data)),
        *titled("Best trials", _best_trials(data)),
        *overload_lines(data),
        *_failures(data),
        *titled("Rejected measurements", rejections(data, MOST_REJECTED)),
        *next_lines(next_steps(data)),
        _signature(data),
    ]
    return joined(parts) + "\n"


def append_step_summary(path: Path, text: str, limit_bytes: int = SUMMARY_LIMIT_BYTES) -> None:
    """Appends to the file that `$GITHUB_STEP_SUMMARY` names, up to ``limit_bytes`` in all.

    Text that does not fit is cut after a line and replaced by a note.
    """
    used = path.stat().st_size if path.exists() else 0
    note = "\n\n*Cut here: the summary of a step cannot be longer. See the run's report.md.*\n"
    content = text.encode()
    room = limit_bytes - used
    if len(content) > room:
        room -= len(note.encode())
        if room <= 0:
            return
        content = content[:room]
        content = content[: content.rfind(b"\n") + 1] + note.encode()
    with path.open("ab") as file:
        file.write(content)


def escaped(text: str) -> str:
    """Text from outside as Markdown that shows it as it is, on one line.

    GitHub notifies whoever is named after an @, and makes a link of a bare URL: a zero-width space
    prevents both.
    """
    text = plain(" ".join(text.split()))
    text = re.sub(r"(?<!\w)@(?=\w)", "@\u200b", text)
    text = re.sub(r"(?i)\b(https?|ftp|mailto|xmpp):(?=\S)", "\\1:\u200b", text)
    text = re.sub(r"(?i)\bwww\.", "www\u200b.", text)
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    text = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)
    text = re.sub(r"([\\`*\[\]|#~])", r"\\\1", text)
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)  # p99_latency needs no escape


def fenced(text: str, language: str) -> str:
    """A code block that no line of ``text`` can end."""
    text = plain_lines(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def table_text(table: Table) -> str:
    lines = [
        _row(table.headers),
        "|" + " --- |" * len(table.headers),
        *(_row(row) for row in table.rows),
    ]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(escaped(cell) or " " for cell in cells) + " |"


def joined(parts: Sequence[str]) -> str:
    """Paragraphs apart, items of one list together."""
    text = ""
    for part in parts:
        together = part.startswith("- ") and text.rsplit("\n", 1)[-1].startswith("- ")
        text += ("\n" if together else "\n\n") + part
    return text.strip()


def _signature(data: ReportData) -> str:
    trials = count_text(len(data.trials), "trial")
    return f"<sub>run {escaped(data.run_id)}, {trials}, {seconds_text(data.wall_s)}</sub>"


def titled(title: str, table: Table | None) -> list[str]:
    """Heading and table; nothing without a table."""
    return [] if table is None else [f"### {title}", table_text(table)]


def titled_code(title: str, text: str, language: str) -> list[str]:
    """Heading and code block; nothing without text."""
    return [f"### {title}", fenced(text, language)] if text.strip() else []


def run_slo_lines(data: ReportData) -> list[str]:
    """The SLOs of the config that the verdict is about."""
    slos = [(row.found, [r.value for r in row.repeats]) for row in data.slo]
    return slo_lines(slos, "expected", "each repeat")


def slo_lines(
    slos: Iterable[tuple[SloResult, Sequence[float | None]]], expected: str, each: str
) -> list[str]:
    """The worst result of each SLO with all its values, and what kind of numbers these are.

    ``expected`` and ``each`` are headers; nothing without SLOs.
    """
    rows = tuple(
        (
            VERDICTS[worst.verdict],
            worst.expression,
            metric_text(worst.metric, worst.value),
            margin_text(worst),
            ", ".join(metric_text(worst.metric, value) for value in values) or NOTHING,
        )
        for worst, values in slos
    )
    table = Table(("verdict", expected, "found, worst", "margin", each), rows)
    return [*titled("SLOs", table), POINT_ESTIMATES] if rows else []


def _best_trials(data: ReportData) -> Table | None:
    best = sorted(data.scored, key=lambda t: t.order(data.objective.goal))[:MOST_TRIALS]
    if not best:
        return None
    rows = []
    for trial in best:
        score = trial.score
        assert score is not None
        point = trial.points[score.best_point] if score.best_point is not None else None
        rows.append(
            (
                str(trial.number),
                change_text(data, trial.candidate),
                score_text(data, score.value),
                p99_of(point),
                count_of_refused(point),
                "yes" if score.feasible else "no",
            )
        )
    return Table(("trial", "change", "score", "p99", "refused", "meets the SLOs"), tuple(rows))


def _failures(data: ReportData) -> list[str]:
    if not data.failed:
        return []
    lines = [f"- trial {t.number}: {escaped(t.reason or '')}" for t in data.failed[:MOST_TRIALS]]
    more = len(data.failed) - len(lines)
    return ["### Failed trials", *lines, *([f"- and {more} more"] if more else [])]


def bottleneck_lines(data: ReportData) -> list[str]:
    """Heading and sentences; nothing where one model is served."""
    lines = [f"- {escaped(sentence)}" for sentence in bottleneck_sentences(data)]
    return ["### Where the time goes", *lines] if lines else []


def _load_curve_lines(data: ReportData) -> list[str]:
    """Heading, table and what it shows; nothing where no load around the credited one is known."""
    chart = load_curve(data)
    return [] if chart is None else [*titled(chart.title, chart.table), escaped(chart.note)]


def overload_lines(data: ReportData) -> list[str]:
    """Heading and sentences; nothing without an overload."""
    lines = [f"- {escaped(sentence)}" for sentence in overload_sentences(data)]
    return ["### Overload and recovery", *lines] if lines else []


def next_lines(steps: Sequence[tuple[str, str]]) -> list[str]:
    """Heading and a line for each (reason, command); the command may be empty."""
    lines = [
        f"- {escaped(reason)}" + (f": {code(command)}" if command else "")
        for reason, command in steps
    ]
    return ["### What next", *lines]


def code(text: str) -> str:
    """Inline code that nothing in ``text`` can end."""
    text = plain(text)
    ticks = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    return f"{ticks}{text}{ticks}"
