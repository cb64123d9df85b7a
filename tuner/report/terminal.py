"""A document on a terminal: its first screen, without pictures and folds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

import click

from tuner.report.blocks import (
    Block,
    Code,
    Document,
    Fold,
    Items,
    Sentence,
    Steps,
    Table,
    Tile,
    Tiles,
    Tone,
)

_COLORS = {Tone.GOOD: "green", Tone.BAD: "red", Tone.UNSURE: "yellow", Tone.PLAIN: None}
_WIDTH = 100


def lines_of(document: Document) -> list[str]:
    """The verdict, its figures, what changes, and what to do next."""
    headline = f"{document.name}: {document.headline}"
    title = click.style(headline, fg=_COLORS[document.tone], bold=True)
    shown = [line for block in document.blocks for line in _lines(block)]
    facts = [f"  {', '.join(document.facts)}"] if document.facts else []
    return ["", title, *facts, *shown]


def columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows of equal length as lines, with their cells aligned in columns."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, Fold):
        return
    if isinstance(block, Items | Steps | Table | Code) and block.caption:
        yield from ("", f"  {block.caption.lower()}")
    if isinstance(block, Sentence):
        yield from _wrapped(block.text)
    elif isinstance(block, Items):
        yield from (line for sentence in block.sentences for line in _wrapped(sentence))
    elif isinstance(block, Steps):
        for what, command in block.steps:
            yield from _wrapped(f"{what}{':' if command else ''}")
            yield from [f"    {command}"] if command else []
    elif isinstance(block, Tiles):
        width = max((len(tile.label) for tile in block.tiles), default=0)
        yield from ("", *(_tile(tile, width) for tile in block.tiles))
    elif isinstance(block, Table):
        yield from columns([block.headers, *block.rows])
    elif isinstance(block, Code):
        yield from (f"    {line}" for line in block.text.splitlines())


def _tile(tile: Tile, width: int) -> str:
    value = click.style(tile.value, fg=_COLORS[tile.tone], bold=True)
    note = f"  ({tile.note})" if tile.note else ""
    return f"  {tile.label.ljust(width)}  {value}{note}"


def _wrapped(text: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ") or []
