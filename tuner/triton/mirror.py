"""A stand-in for a model repository that a server may write into.

A Python model leaves ``__pycache__`` beside its code. That would change the user's repository,
and to Triton a changed version directory is a changed model: the next change of instances would
be a full reload instead of an update in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.triton.private import private_directory

_BYTECODE = "__pycache__"


@contextmanager
def mirrored(repository: Path) -> Iterator[Path]:
    """Directories like the repository's, with links to its files, for as long as it is open."""
    with private_directory() as private:
        mirror = private / "models"
        _mirror(repository.resolve(), mirror, ())
        yield mirror


def _mirror(source: Path, target: Path, ancestors: tuple[Path, ...]) -> None:
    target.mkdir()
    ancestors = (*ancestors, source)
    for entry in source.iterdir():
        copy = target / entry.name
        if entry.name == _BYTECODE:
            continue
        if not entry.is_dir():
            copy.symlink_to(entry)
        elif entry.resolve() not in ancestors:
            _mirror(entry.resolve(), copy, ancestors)
    if any(target.glob("*.py")):
        # Python cannot make a directory of this name, and goes on without.
        (target / _BYTECODE).touch()
