"""A document on a terminal: its first screen, without pictures and folds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, takewhile
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
    """The verdict, its figures, the changes, and the next steps; ``width`` as in `columns`."""
    said, rest = _parts(document)
    return ["", *_verdict(document, width, said), *_body(rest, width)]


def lines_to_verdict(document: Document, width: int = 0) -> list[str]:
    """The same with the verdict last, so that it is visible on a terminal that has scrolled."""
    said, rest = _parts(document)
    return [*_body(rest, width), "", *_verdict(document, width, said)]


def _parts(document: Document) -> tuple[list[Block], list[Block]]:
    """The first sentences, which explain the verdict, and all other blocks."""
    said = list(takewhile(lambda block: isinstance(block, Sentence), document.blocks))
    return said, list(document.blocks[len(said) :])


def _verdict(document: Document, width: int, said: Sequence[Block]) -> Iterator[str]:
    for line in wrap(f"{document.name}: {document.headline}", width or _WIDTH) or [""]:
        yield click.style(line, fg=_COLORS[document.tone], bold=True)
    yield from _wrapped(", ".join(document.facts), width)
    yield from _body(said, width)


def _body(blocks: Sequence[Block], width: int) -> Iterator[str]:
    return (line for block in blocks for line in _lines(block, width))


def columns(rows: Sequence[tuple[str, ...]], width: int = 0) -> Iterator[str]:
    """Rows of equal length as lines, with cells aligned in columns.

    Args:
        rows: The cells; the first row has the headers.
        width: Width of the terminal; columns without room move below their row, each with its
            header. 0: no limit.
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
        yield from _wrapped(block.text, width)
    elif isinstance(block, Bullets):
        yield from (line for sentence in block.sentences for line in _wrapped(sentence, width))
    elif isinstance(block, Steps):
        for what, command in block.steps:
            yield from _wrapped(f"{what}{':' if command else ''}", width)
            yield from [f"    {command}"] if command else []
    elif isinstance(block, Tiles):
        labels = max((len(tile.label) for tile in block.tiles), default=0)
        yield from ("", *(line for tile in block.tiles for line in _tile(tile, labels, width)))
    elif isinstance(block, Table):
        yield from columns([block.headers, *block.rows], width)
    elif isinstance(block, Code):
        yield from (f"    {line}" for line in block.text.splitlines())


def _tile(tile: Tile, labels: int, width: int) -> Iterator[str]:
    """A tile with its note beside it, or below it on a narrow terminal."""
    value = click.style(tile.value, fg=_COLORS[tile.tone], bold=True)
    line, note = f"  {tile.label.ljust(labels)}  {value}", f"({tile.note})" * bool(tile.note)
    if not width or len(click.unstyle(line)) + 2 + len(note) <= width:
        yield f"{line}  {note}".rstrip()
    else:
        yield from (line, *_wrapped(note, width, indent=4))


def _wrapped(text: str, width: int, indent: int = 2) -> list[str]:
    """Lines of a readable length; ``width`` as in `columns`."""
    ends = min(width, _WIDTH) if width else _WIDTH
    begin, more = " " * indent, " " * (indent + 2)
    return wrap(text, ends, initial_indent=begin, subsequent_indent=more)
