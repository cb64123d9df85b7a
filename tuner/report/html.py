"""A document as one self-contained HTML file."""

from __future__ import annotations

import base64
import json
from functools import cache
from importlib import resources
from typing import Any

from tuner.plain import plain_lines
from tuner.record.result_schema import SCHEMA_VERSION
from tuner.report.blocks import Document, charts_in
from tuner.report.quantities import time_text
from tuner.version import VERSION


def render(document: Document) -> str:
    """The whole page, with all external text escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("tuner.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_plain,
    )
    environment.filters.update(kind=lambda b: type(b).__name__, lines=_lines, time=time_text)
    drawn = {chart.name: chart.figure for chart in charts_in(document.blocks)}
    return environment.get_template("page.html.j2").render(
        document=document,
        version=VERSION,
        schema_version=SCHEMA_VERSION,
        css=Markup(_asset("report.css")),  # noqa: S704  from this package
        js=Markup(_asset("report.js")),  # noqa: S704  from this package
        figures=Markup(script_json(_plain(drawn))),  # noqa: S704  escaped by script_json
        plotly=plotly_packed() if drawn else "",
    )


def _lines(text: str, language: str) -> list[tuple[str, str]]:
    """The lines of a diff with their kinds; any other text as one line."""
    if language != "diff":
        return [("", text)]
    kinds = {"+": "added", "-": "removed", "@": "place"}
    return [
        ("place" if line.startswith(("---", "+++")) else kinds.get(line[:1], ""), line)
        for line in text.splitlines()
    ]


def _plain(value: Any) -> Any:
    """Makes every text printable, and leaves this package's Markup as it is."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return plain_lines(value) if type(value) is str else value


def script_json(value: object) -> str:
    """JSON that is safe inside a script element: no text can end the element or open a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def plotly_packed() -> str:
    """The basic plotly.js 4.1.1 (scatter and bar; MIT licence), gzipped, in base64."""
    packed = resources.files("tuner.report") / "assets" / "plotly-basic.min.js.gz"
    return base64.b64encode(packed.read_bytes()).decode()


def _asset(name: str) -> str:
    return (resources.files("tuner.report") / "assets" / name).read_text(encoding="utf-8")
