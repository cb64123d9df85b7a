"""A substitute for a model repository that a server may write into.

A Python model leaves ``__pycache__`` next to its code. That would change the user's repository,
and to Triton a changed version directory is a changed model: the next change of instances would
be a full reload instead of an update in place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.machine.private import PREFIX, private_directory

_BYTECODE = "__pycache__"


@contextmanager
def mirror_of(repository: Path) -> Iterator[Path]:
    """Directories like the repository's, with links to its files, for as long as it is open.

    A directory that a model links to (a data set, weights) stays one link, unless it holds Python
    code; so does one that may not be read. Models that are not tuned are there, for ensembles.
    """
    with private_directory() as private:
        mirror = private / "models"
        _mirror(repository.resolve(), mirror, ())
        yield mirror


def in_repository(words: str, repository: Path) -> str:
    """A server's words with the repository's own path for that of a mirror."""
    return re.sub(rf"[^\s'\"]*/{PREFIX}\w+/models(?=/)", lambda _: str(repository), words)


def _mirror(source: Path, target: Path, ancestors: tuple[Path, ...]) -> None:
    target.mkdir()
    ancestors = (*ancestors, source)
    for entry in source.iterdir():
        copy = target / entry.name
        if entry.name == _BYTECODE:
            continue
        if not os.access(entry, os.R_OK | os.X_OK) or not entry.is_dir():
            copy.symlink_to(entry)
        elif (real := entry.resolve()) in ancestors:
            continue
        elif entry.is_symlink() and not _may_get_bytecode(entry, len(ancestors)):
            copy.symlink_to(real)
        else:
            _mirror(real, copy, ancestors)
    if any(target.glob("*.py")):
        # Python cannot make a directory of this name, and goes on without.
        (target / _BYTECODE).touch()


def _may_get_bytecode(link: Path, depth: int) -> bool:
    """Whether Python code is where a link to a directory leads.

    Args:
        depth: 1 for a model, 2 for what lies in its directory: versions and other things.
    """
    if depth == 1 or (depth == 2 and link.name.isdecimal()):
        return True
    return any(link.glob("*.py")) or any(link.glob("*/__init__.py"))
