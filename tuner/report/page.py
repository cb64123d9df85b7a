"""One HTML file that needs nothing from outside: what the pages of runs and checks share."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable
from enum import Enum
from functools import cache
from importlib import resources
from typing import Any

from tuner import __version__
from tuner.plain import plain_lines
from tuner.report.charts.chart import Chart
from tuner.report.quantities import POINT_ESTIMATES, VERDICTS, found_text, margin_text


class Tone(Enum):
    """The colour and the sign of a verdict."""

    GOOD = "good"
    BAD = "bad"
    UNSURE = "unsure"


def rendered(template: str, charts: Iterable[Chart], tone: Tone, words: dict[str, Any]) -> str:
    """A template of `assets` filled in. Everything that came from outside is escaped.

    Args:
        template: Its name; it extends `page.html.j2`.
        charts: All that the template shows; the page includes plotly if there is one.
        tone: Of the headline.
        words: The template's own values.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("tuner.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_plain,
    )
    drawn = {chart.name: chart.figure for chart in charts}
    return environment.get_template(template).render(
        **words,
        tone=tone.value,
        version=__version__,
        verdicts=VERDICTS,
        point_estimates=POINT_ESTIMATES,
        found_text=found_text,
        margin_text=margin_text,
        css=Markup(_asset("report.css")),  # noqa: S704  our own file
        js=Markup(_asset("report.js")),  # noqa: S704  our own file
        figures=Markup(script_json(_plain(drawn))),  # noqa: S704  escaped by script_json
        plotly=plotly_packed() if drawn else "",
    )


def _plain(value: Any) -> Any:
    """With every text in it as it may be shown; our own Markup as it is."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return plain_lines(value) if type(value) is str else value


def script_json(value: object) -> str:
    """JSON that is safe inside a script element: no text can end it or open a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def plotly_packed() -> str:
    """plotly.js, gzipped, in base64: a third of its size, and it does not delay the page."""
    from plotly.offline import get_plotlyjs

    packed = gzip.compress(get_plotlyjs().encode(), compresslevel=6, mtime=0)
    return base64.b64encode(packed).decode()


def _asset(name: str) -> str:
    return (resources.files("tuner.report") / "assets" / name).read_text(encoding="utf-8")
