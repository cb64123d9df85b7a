"""A document on a terminal: its first screen, without pictures and folds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from textwrap import wrap

import click

from tuner.report.blocks import (
    Block,
    Bullets,
    Code,
    Document,
    Fold,
    Sentence,
    Steps,
    Table,
    Tile,
    Tiles,
    Tone,
)

_COLORS = {Tone.GOOD: "green", Tone.BAD: "red", Tone.UNSURE: "yellow", Tone.PLAIN: None}
_WIDTH = 100


def lines_of(document: Document, width: int = 0) -> list[str]:
    """The verdict, its figures, what changes, and what to do next; ``width`` as of `columns`."""
    headline = f"{document.name}: {document.headline}"
    title = click.style(headline, fg=_COLORS[document.tone], bold=True)
    shown = [line for block in document.blocks for line in _lines(block, width)]
    facts = [f"  {', '.join(document.facts)}"] if document.facts else []
    return ["", title, *facts, *shown]


def columns(rows: Sequence[tuple[str, ...]], width: int = 0) -> Iterator[str]:
    """Rows of equal length as lines, with their cells aligned in columns.

    Of a terminal's ``width``: columns that find no room are below their row, each by its header,
    which the first row has. 0: all are beside each other.
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    ends = accumulate(2 + w for w in widths)
    fit = max(1, sum(end <= width for end in ends)) if width else len(widths)
    for row in rows:
        cells = (c.ljust(w) for c, w in zip(row[:fit], widths, strict=False))
        yield "  " + "  ".join(cells).rstrip()
        for header, cell in zip(
            rows[0][fit:], row[fit:] if row is not rows[0] else (), strict=False
        ):
            below = f"{header}: {cell}" if cell else ""
            yield from wrap(
                below, width, initial_indent="    ", subsequent_indent="      ",
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip


def _lines(block: Block, width: int) -> Iterator[str]:
    if isinstance(block, Fold):
        return
    if isinstance(block, Bullets | Steps | Table | Code) and block.caption:
        yield from ("", f"  {block.caption[:1].lower()}{block.caption[1:]}")
    if isinstance(block, Sentence):
        yield from _wrapped(block.text)
    elif isinstance(block, Bullets):
        yield from (line for sentence in block.sentences for line in _wrapped(sentence))
    elif isinstance(block, Steps):
        for what, command in block.steps:
            yield from _wrapped(f"{what}{':' if command else ''}")
            yield from [f"    {command}"] if command else []
    elif isinstance(block, Tiles):
        width = max((len(tile.label) for tile in block.tiles), default=0)
        yield from ("", *(_tile(tile, width) for tile in block.tiles))
    elif isinstance(block, Table):
        yield from columns([block.headers, *block.rows], width)
    elif isinstance(block, Code):
        yield from (f"    {line}" for line in block.text.splitlines())


def _tile(tile: Tile, width: int) -> str:
    value = click.style(tile.value, fg=_COLORS[tile.tone], bold=True)
    note = f"  ({tile.note})" if tile.note else ""
    return f"  {tile.label.ljust(width)}  {value}{note}"


def _wrapped(text: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ") or []
