"""The pages of the documentation, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[2]
_FOLDERS = ("docs", "benchmarks", "model_repository", "search_spaces")
PAGES = [
    *sorted(page for folder in _FOLDERS for page in (TOP / folder).glob("**/*.md")),
    *(TOP / "results" / "README.md", *sorted(TOP.glob("*.md"))),  # runs leave reports there
]
_BLOCK = re.compile(r"^```(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_BETWEEN = {"&&", "||", ";", "&", "|"}


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """Language and text of each block."""
    return [(block[1], block[2]) for block in _BLOCK.finditer(page.read_text())]


def commands_of(page: Path) -> Iterator[list[str]]:
    """What a reader would type: the lines of ``bash`` blocks, and what follows a ``$``."""
    for language, text in blocks_of(page):
        joined = text.replace("\\\n", " ").splitlines()
        if language == "console":
            joined = [line[2:] for line in joined if line.startswith("$ ")]
        for line in joined if language in ("bash", "console") else ():
            yield from _split(line)


def _split(line: str) -> Iterator[list[str]]:
    """The simple commands of a line, without where their output goes."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    command: list[str] = []
    for word in [*words, ";"]:
        if word not in _BETWEEN:
            command.append(word)
            continue
        if command:
            yield command[: command.index(">")] if ">" in command else command
        command = []
