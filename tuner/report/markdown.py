"""A document as Markdown: for a pull request, a step summary, a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tuner.plain import plain, plain_lines
from tuner.report.blocks import (
    Block,
    Bullets,
    Chart,
    Code,
    Document,
    Fold,
    Sentence,
    Steps,
    Table,
    Tiles,
)
from tuner.report.quantities import time_text

#: Most rows of a table; the page has all rows.
MOST_ROWS = 20


def render(document: Document) -> str:
    """The whole report. External text cannot become markup."""
    when = [time_text(document.started_at)] if document.started_at else []
    run = f"{document.kind} {document.run_id}".rstrip()
    facts = (escaped(fact) for fact in (run, *when, *document.facts))
    title = f"## {escaped(document.name)}: {escaped(document.headline)}"
    return joined([title, *parts(document.blocks), f"<sub>{', '.join(facts)}</sub>"]) + "\n"


def parts(blocks: Sequence[Block]) -> list[str]:
    """Paragraphs, headings, tables, code blocks and list items, each as one text."""
    return [part for block in blocks for part in _parts(block)]


def _parts(block: Block) -> Iterator[str]:
    if isinstance(block, Fold):
        blocks = [] if block.page_only else [b for b in block.blocks if not isinstance(b, Chart)]
        texts = parts(blocks)
        yield from [f"### {block.title}", *texts] if texts else []
        return
    title = getattr(block, "caption", getattr(block, "title", ""))
    if title:
        yield f"#### {escaped(title)}"
    if isinstance(block, Sentence):
        yield escaped(block.text)
    elif isinstance(block, Table):
        yield table_text(block)
    elif isinstance(block, Chart):
        yield from (escaped(block.note), table_text(block.table))
    elif isinstance(block, Code):
        yield fenced(block.text, block.language)
    else:
        yield from _items(block)


def _items(block: Block) -> Iterator[str]:
    if isinstance(block, Bullets):
        yield from (f"- {escaped(sentence)}" for sentence in block.sentences)
    elif isinstance(block, Steps):
        for what, command in block.steps:
            yield f"- {escaped(what)}" + (f": {code(command)}" if command else "")
    elif isinstance(block, Tiles):
        for tile in block.tiles:
            note = f" ({escaped(tile.note)})" if tile.note else ""
            yield f"- {escaped(tile.label)}: **{escaped(tile.value)}**{note}"


def escaped(text: str) -> str:
    """External text as Markdown that shows it literally, on one line.

    GitHub notifies users named after an @, and makes bare URLs links: a zero-width space prevents
    both.
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
    fence = _ticks(text).rjust(3, "`")
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def table_text(table: Table) -> str:
    left_out = len(table.rows) - MOST_ROWS
    lines = [
        _row(table.headers),
        "|" + " --- |" * len(table.headers),
        *(_row(row) for row in table.rows[:MOST_ROWS]),
        *([f"\nand {left_out:,} more in report.html"] if left_out > 0 else []),
    ]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(escaped(cell) or " " for cell in cells) + " |"


def joined(parts: Sequence[str]) -> str:
    """Paragraphs with blank lines between them, items of a list without."""
    text = ""
    for part in parts:
        together = part.startswith("- ") and text.rsplit("\n", 1)[-1].startswith("- ")
        text += ("\n" if together else "\n\n") + part
    return text.strip()


def code(text: str) -> str:
    """Inline code that nothing in ``text`` can end."""
    text = plain(text)
    return f"{_ticks(text)}{text}{_ticks(text)}"


def _ticks(text: str) -> str:
    """More backticks than the text has anywhere in a row."""
    return "`" * (max(map(len, re.findall(r"`+", text)), default=0) + 1)
