from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from importlib import resources

import pytest
from builders.pages import NASTY, STATUSES, Made, page_of

from tuner.report.charts import BLUE, GREEN, GREY, ORANGE, PURPLE, RED
from tuner.report.html import _plain, script_json

VOID = {"meta", "link", "img", "input", "br", "hr", "wbr"}


class Page(HTMLParser):
    """Elements, with a check that each is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        name = self.elements[-1][1].get("id") if self.elements else None
        if name and self.open and self.open[-1] == self.elements[-1][0]:
            self.text[name] = self.text.get(name, "") + data

    def ids(self) -> list[str]:
        return [str(a["id"]) for _, a in self.elements if "id" in a]


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_makes_a_complete_page(made: Made, status: str) -> None:
    page = Page(page_of(made(status)))
    ids = page.ids()
    assert len(ids) == len(set(ids))
    links = [a["href"] for tag, a in page.elements if tag == "a"]
    assert all(str(link).startswith("#") and str(link)[1:] in ids for link in links)


def test_charts_and_figures_are_the_same_set(made: Made) -> None:
    page = Page(page_of(made("improved", gpu=True)))
    plots = [a["data-figure"] for _, a in page.elements if "data-figure" in a]
    figures = json.loads(page.text["figures"])
    assert sorted(str(p) for p in plots) == sorted(figures)
    assert {"load-p99_latency", "pareto", "parts", "batches", "history"} <= set(figures)


def test_only_the_answer_and_one_picture_are_not_folded(made: Made) -> None:
    page = Page(page_of(made()))
    start = next(i for i, (_, a) in enumerate(page.elements) if a.get("class") == "fold")
    first = page.elements[:start]
    assert [a["data-figure"] for _, a in first if "data-figure" in a] == ["load-p99_latency"]
    folds = [a for _, a in page.elements if a.get("class") == "fold"]
    assert len(folds) >= 8
    assert not any("open" in fold for fold in folds)


def test_of_a_failed_run_the_failures_are_open(made: Made) -> None:
    page = Page(page_of(made("failed")))
    (fold,) = (a for _, a in page.elements if a.get("id") == "failures")
    assert "open" in fold


def test_without_predictions_there_is_no_word_of_them(made: Made) -> None:
    assert "predicted" not in page_of(made()).split('<script type="application/json"')[0]


def test_tables_lead_to_the_trials_they_name(made: Made) -> None:
    text = page_of(made())
    (pareto,) = re.findall(r'<figure class="chart" id="pareto">.*?</figure>', text, re.DOTALL)
    assert re.search(r'<th scope="row"[^>]*><a href="#trial-0">0</a></th>', pareto)


def test_every_chart_has_its_numbers_in_a_table(made: Made) -> None:
    text = page_of(made("improved", gpu=True))
    figures = re.findall(r"<figure.*?</figure>", text, re.DOTALL)
    assert len(figures) == 5
    assert all("<details>" in f and f.count("<tr>") >= 2 for f in figures)


def test_figures_are_valid_for_plotly(made: Made) -> None:
    from plotly import graph_objects

    page = Page(page_of(made("improved", gpu=True)))
    for figure in json.loads(page.text["figures"]).values():
        drawn = graph_objects.Figure(figure)  # raises on an unknown or wrong property
        assert len(drawn.data) > 0


def test_nothing_comes_from_outside(made: Made) -> None:
    page = Page(page_of(made()))
    for _, attributes in page.elements:
        for name in ("src", "href", "action", "data"):
            assert not (attributes.get(name) or "").startswith(("http", "//", "file"))
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv"))
    assert str(policy).startswith("default-src 'none';")


def test_text_from_outside_stays_text(made: Made) -> None:
    text = page_of(made(model=NASTY))
    page = Page(text)
    assert not [tag for tag, _ in page.elements if tag == "img"]
    assert text.count("</script>") == 3
    assert "&lt;img src=x onerror=alert(1)&gt;" in text


def test_invisible_characters_are_made_visible(made: Made) -> None:
    text = page_of(made(model="m\u202e\x1b[8m"))
    assert r"m\u202e\x1b[8m" in text
    assert not set(text) & {"\u202e", "\x1b"}
    assert _plain({"x": ["\u202e", 1]}) == {"x": [r"\u202e", 1]}


def test_hover_labels_are_escaped_for_plotly(made: Made) -> None:
    data = made(slo=("p99_latency <= 40ms",))
    figures = json.loads(Page(page_of(data)).text["figures"])
    labels = [t for trace in figures["load-p99_latency"]["data"] for t in trace["text"]]
    assert labels
    assert all("p99_latency &lt;= 40ms" in label for label in labels)


def test_plotly_is_embedded_once_and_completely(made: Made) -> None:
    page = Page(page_of(made()))
    script = gzip.decompress(base64.b64decode(page.text["plotly-gzip-base64"])).decode()
    assert "plotly.js (basic" in script[:40]
    assert "MIT license" in script[:300]


def test_200_trials_stay_below_the_limit(made: Made) -> None:
    assert len(page_of(made(trials=200, gpu=True)).encode()) < 2_200_000


@pytest.mark.parametrize("text", ["</script>", "<!--", "a & b", "\u2028"])
def test_json_in_a_script_cannot_end_it(text: str) -> None:
    written = script_json({"t": text})
    assert not set(written) & set("<>&")
    assert json.loads(written) == {"t": text}


def luminance(colour: str) -> float:
    """WCAG's relative luminance of `#rrggbb`."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("colour", [BLUE, ORANGE, GREEN, RED, PURPLE, GREY])
def test_a_dark_page_draws_charts_in_colours_that_stand_out_from_it(colour: str) -> None:
    css = (resources.files("tuner.report") / "assets" / "report.css").read_text()
    dark = css.split("prefers-color-scheme: dark")[1].split("}")[0]
    colors = dict(re.findall(r"--([\w]+): (#[0-9a-f]{6});", dark))
    ground, drawn = luminance(colors["ground"]), luminance(colors[colour[1:]])
    assert (drawn + 0.05) / (ground + 0.05) >= 4.5


def test_commands_break_only_between_words(made: Made) -> None:
    data = made("improved")
    page = page_of(data)
    output = f"--output={data.directory.parent}"
    words = ("tune", "check", "search_spaces/toy.yaml", output, "--update-baseline")
    assert " ".join(f"<span>{word}</span>" for word in words) in page
