"""Reports of synthetic runs, rendered whole or looked at by their parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import click

from tuner.record.earlier import reason_of_sentence
from tuner.record.proved import ProvedConfig
from tuner.report import html, markdown
from tuner.report.blocks import Document
from tuner.report.data import ReportData
from tuner.report.run_document import document
from tuner.report.terminal import lines_of, lines_to_verdict
from tuner.report.trust import trust

Made = Callable[..., ReportData]
#: Every way that a run may end.
STATUSES = ("improved", "kept", "infeasible", "not known", "interrupted", "failed", "killed")
#: A name and texts that would break out of any format that does not escape them.
NASTY = "m</script><img src=x onerror=alert(1)>|`*&amp;]]>"


def page_of(data: ReportData) -> str:
    """The report as HTML."""
    return html.render(document(data))


def text_of(data: ReportData) -> str:
    """The report as Markdown."""
    return markdown.render(document(data))


def terminal_of(page: Document) -> str:
    """A document as a terminal without colours shows it."""
    lines = lines_of if page.kind == "comparison" else lines_to_verdict
    return click.unstyle("\n".join(lines(page)))


def with_result(data: ReportData, **changes: object) -> ReportData:
    """The run with other values in its result."""
    if "reasons" in changes:  # as sentences, like those of an earlier version
        changes["why"] = tuple(map(reason_of_sentence, changes["reasons"]))  # type: ignore[call-overload]
    return replace(data, result=data.result.model_copy(update=changes))


def with_configs(data: ReportData, **changed: ProvedConfig | None) -> ReportData:
    """The run with another ``current`` or ``best`` config."""
    names = {"current": "baseline", "best": "winner" if data.result.winner else "best"}
    return with_result(data, **{names[name]: config for name, config in changed.items()})


def checks_of(data: ReportData) -> dict[str, tuple[str, str]]:
    """What was checked: whether it holds, and what was found."""
    table = trust(data)
    assert table is not None
    return {check: (word, detail) for word, check, detail in table.rows}
