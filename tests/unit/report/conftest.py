from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from builders.runs import Toy, make_run

from tuner.report import html, markdown
from tuner.report.data import ReportData, load
from tuner.report.run_document import document

Made = Callable[..., ReportData]

#: A name and texts that would break out of any format that does not escape them.
NASTY = "m</script><img src=x onerror=alert(1)>|`*&amp;]]>"


def page_of(data: ReportData) -> str:
    """The report as HTML."""
    return html.render(document(data))


def text_of(data: ReportData) -> str:
    """The report as Markdown."""
    return markdown.render(document(data))


def told(data: ReportData, **changes: object) -> ReportData:
    """The run as if its result had been another one."""
    return replace(data, result=data.result.model_copy(update=changes))


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Makes a synthetic run and reads it: ``made(status, **toy)``."""

    def make(status: str = "improved", **toy: object) -> ReportData:
        return load(make_run(tmp_path, Toy(**toy), status))  # type: ignore[arg-type]

    return make
