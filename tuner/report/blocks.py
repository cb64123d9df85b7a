"""What a report says, as blocks: built once, and shown as a page, as Markdown and on a terminal.

A builder (`run_document`, `check_document`, `compare`) says what there is to read; a renderer
(`html`, `markdown`, `terminal`) knows each kind of block, and nothing of runs or checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Tone(Enum):
    """What a verdict means to its reader: it has a colour and a sign."""

    GOOD = "good"
    BAD = "bad"
    UNSURE = "unsure"
    PLAIN = "plain"


@dataclass(frozen=True)
class Sentence:
    """A paragraph; ``aside``: a note on how to read what is around it."""

    text: str
    aside: bool = False


@dataclass(frozen=True)
class Bullets:
    """Sentences that do not follow from one another, below a caption."""

    caption: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Steps:
    """What the reader may do, each with its command, which may be empty."""

    caption: str
    steps: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Tile:
    """One figure of the first screen.

    Attributes:
        note: What the figure rests on.
        share: How much of what is allowed it uses up, drawn as a bar; above 1 it is too much.
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
    """Cells in rows. ``tones``: of the first cell of each row, where that is a verdict."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    tones: tuple[Tone, ...] = ()


@dataclass(frozen=True)
class Code:
    """A text as it is: a diff, a command, the words of a server."""

    caption: str
    text: str
    language: str = ""


@dataclass(frozen=True)
class Chart:
    """A plotly figure as plain values (``data`` and ``layout``), and its numbers as a table.

    Attributes:
        name: A slug.
        note: What to look for.
    """

    name: str
    title: str
    note: str
    figure: dict[str, Any]
    table: Table


@dataclass(frozen=True)
class Row:
    """A row of a long table, which opens to show more.

    Attributes:
        name: The anchor that links lead to.
        cells: The second one is what the row is filtered by.
        keys: What each cell is sorted by, where that is not its text.
        more: What the row opens to.
    """

    name: str
    cells: tuple[str, ...]
    keys: tuple[str, ...]
    more: tuple[Block, ...]


@dataclass(frozen=True)
class Rows:
    """A long table whose rows can be sorted, filtered and opened."""

    headers: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Fold:
    """Details that are opened on demand.

    Attributes:
        name: A slug.
        page_only: They are left out of Markdown.
        opened: They are open from the first.
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
        name: What it is about.
        headline: The verdict in a few words.
        kind: What was done: run, check or comparison.
        blocks: The answer first, then the details as folds.
        started_at: ISO 8601; empty where there is no such time.
        facts: What it rests on, a few words each.
        refresh_s: A browser reads the page again so often; 0: never, it is complete.
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
    """The blocks that say something: not those that are missing or empty."""
    return tuple(block for block in blocks if block is not None and not _empty(block))


#: What of a block there must be, for it to say something.
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
    """The charts, those in folds too."""
    for block in blocks:
        if isinstance(block, Chart):
            yield block
        elif isinstance(block, Fold):
            yield from charts_in(block.blocks)
