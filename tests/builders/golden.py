"""Texts as users read them: each is a file of `tests/golden`, and one option rewrites those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import unified_diff
from html.parser import HTMLParser
from pathlib import Path
from textwrap import indent

import pytest
from builders.pages import terminal_of

from tuner import __version__
from tuner.report import html, markdown
from tuner.report.blocks import Document

GOLDEN = Path(__file__).parents[1] / "golden"
OPTION = "--update-golden"
UPDATE = f"pytest tests/unit/golden {OPTION}"
_LINES = {"p", "h1", "h2", "h3", "ul", "li", "dt", "dd", "tr", "pre", "summary", "title", "footer"}
_UNSEEN = {"style", "script", "select"}


class Golden:
    """Holds a text against its file, or writes that file where the option was given."""

    def __init__(self, config: pytest.Config) -> None:
        self.updates = bool(config.getoption(OPTION))

    def __call__(self, name: str, text: str) -> None:
        path, text = GOLDEN / f"{name}.txt", text.rstrip("\n") + "\n"
        kept = path.read_text(encoding="utf-8") if path.exists() else ""
        if self.updates:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif changed := difference(f"{name}.txt", kept, text):
            pytest.fail(changed, pytrace=False)

    def names(self, folder: str, expected: Iterable[str]) -> None:
        """No file is without its text; where files are written, such a one is removed."""
        left = {path.stem for path in (GOLDEN / folder).glob("*.txt")} - {*expected}
        for name in left if self.updates else ():
            (GOLDEN / folder / f"{name}.txt").unlink()
        assert self.updates or not left, f"nothing makes these any more: {UPDATE} removes them"


def difference(file: str, kept: str, text: str) -> str:
    """What a reader would see otherwise, and the command that accepts it; empty if nothing."""
    lines = unified_diff(
        kept.splitlines(), text.splitlines(), f"tests/golden/{file}", "as it is now", lineterm=""
    )
    message = "\n".join(lines)
    return message and f"{message}\n\nIf that is meant: {UPDATE}, and look at git diff tests/golden"


def forms(document: Document, **more: str) -> str:
    """A document as each of its readers sees it."""
    terminal = terminal_of(document)
    page = "\n".join(visible(html.render(document)))
    return sections(terminal=terminal, markdown=markdown.render(document), page=page, **more)


def sections(**texts: str) -> str:
    """Texts below one another, each below its name."""
    return "\n\n".join(f"######## {name}\n\n{text.strip()}" for name, text in texts.items())


def table_of(cases: Mapping[str, object]) -> str:
    """What is said in each case, below the name of the case."""
    return "\n\n".join(f"{name}:\n{indent(str(said), '    ')}" for name, said in cases.items())


def visible(page: str) -> list[str]:
    """The lines of an HTML page that a reader sees, cells of a row beside each other."""
    seen = _Seen()
    seen.feed(page.replace(f"triton-tune {__version__}", "triton-tune VERSION"))
    return [line for line in (" ".join(line.split()) for line in seen.lines()) if line]


class _Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self._text: list[str] = []
        self._unseen: list[str] = []

    def lines(self) -> list[str]:
        return "".join(self._text).splitlines()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unseen += [tag] if tag in _UNSEEN else []
        self._text.append("\n" if tag in _LINES else " | " if tag in ("td", "th") else "")

    def handle_endtag(self, tag: str) -> None:
        if self._unseen[-1:] == [tag]:
            self._unseen.pop()
        self._text.append("\n" if tag in _LINES else " " if tag in ("time", "span") else "")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self._text.append(data)
