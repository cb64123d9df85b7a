"""Blocks of a report: built once, and shown as a page, as Markdown and on a terminal.

A builder (`run_document`, `check_document`, `compare`) makes the blocks; a renderer (`html`,
`markdown`, `terminal`) has a case for each kind of block, and none for runs or checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Tone(Enum):
    """The meaning of a verdict for its reader, shown as a color and a sign."""

    GOOD = "good"
    BAD = "bad"
    UNSURE = "unsure"
    PLAIN = "plain"


@dataclass(frozen=True)
class Sentence:
    """A paragraph; ``aside``: a hint on how to read the blocks around it."""

    text: str
    aside: bool = False


@dataclass(frozen=True)
class Bullets:
    """Independent sentences below a caption."""

    caption: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Steps:
    """Next steps for the reader, each with its command, which may be empty."""

    caption: str
    steps: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Tile:
    """One figure of the first screen.

    Attributes:
        note: The basis of the figure.
        share: Used share of what is allowed, drawn as a bar; above 1 it is exceeded.
    """

    label: str
    value: str
    note: str = ""
    tone: Tone = Tone.PLAIN
    share: float | None = None


@dataclass(frozen=True)
class Tiles:
    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class Table:
    """Cells in rows. ``tones``: that of each row's first cell, if these are verdicts."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    tones: tuple[Tone, ...] = ()


@dataclass(frozen=True)
class Code:
    """Literal text: a diff, a command, a server's words."""

    caption: str
    text: str
    language: str = ""


@dataclass(frozen=True)
class Chart:
    """A plotly figure as plain values (``data`` and ``layout``), and its numbers as a table.

    Attributes:
        name: A slug.
        note: A hint on how to read it.
    """

    name: str
    title: str
    note: str
    figure: dict[str, Any]
    table: Table


@dataclass(frozen=True)
class Row:
    """A row of a long table, with details on demand.

    Attributes:
        name: Anchor for links.
        cells: The second cell is the one that a filter uses.
        keys: Sort key of each cell, where it is not the text.
    """

    name: str
    cells: tuple[str, ...]
    keys: tuple[str, ...]
    more: tuple[Block, ...]


@dataclass(frozen=True)
class Rows:
    """A long table whose rows readers can sort, filter and open."""

    headers: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Fold:
    """Details on demand.

    Attributes:
        name: A slug.
        page_only: Markdown leaves it out.
        opened: It is open at first.
    """

    name: str
    title: str
    blocks: tuple[Block, ...]
    page_only: bool = False
    opened: bool = False


Block = Sentence | Bullets | Steps | Tiles | Table | Code | Chart | Rows | Fold


@dataclass(frozen=True)
class Document:
    """A report.

    Attributes:
        name: Name of the models or files that it is about.
        headline: The verdict in a few words.
        kind: run, check or comparison.
        blocks: The answer first, then the details as folds.
        started_at: ISO 8601; empty without a time.
        facts: The basis of the verdict, a few words each.
        refresh_s: Seconds after which a browser reloads the page; 0: never, since it is complete.
    """

    name: str
    headline: str
    tone: Tone
    kind: str
    blocks: tuple[Block, ...]
    run_id: str = ""
    started_at: str = ""
    facts: tuple[str, ...] = ()
    refresh_s: int = 0


def filled(*blocks: Block | None) -> tuple[Block, ...]:
    """The blocks with content: without None, and without empty blocks."""
    return tuple(block for block in blocks if block is not None and not _empty(block))


#: The field of each kind of block that must not be empty.
_CONTENT = {
    Sentence: "text",
    Bullets: "sentences",
    Steps: "steps",
    Tiles: "tiles",
    Table: "rows",
    Code: "text",
    Chart: "figure",
    Rows: "rows",
    Fold: "blocks",
}


def _empty(block: Block) -> bool:
    content = getattr(block, _CONTENT[type(block)])
    return not (content.strip() if isinstance(content, str) else content)


def charts_in(blocks: Sequence[Block]) -> Iterator[Chart]:
    """All charts, including those in folds."""
    for block in blocks:
        if isinstance(block, Chart):
            yield block
        elif isinstance(block, Fold):
            yield from charts_in(block.blocks)
