"""What files hold, of models and of a spec, in a form that two machines can compare."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tuner.modelconfig.served import Served

#: A file no larger than their product is read completely; of a larger one, so many blocks.
_BLOCKS, _BLOCK_BYTES = 64, 1 << 20
#: So many files of a model are read.
_MOST_FILES = 10_000
#: So many differences are named.
_NAMED = 5


def content_of(
    served: Served, others: Mapping[str, Path], note: Callable[[str], None] = lambda _: None
) -> dict[str, str]:
    """A hash for each file of the models, by ``MODEL/VERSION/NAME``, and for the ``others``.

    A link to a directory counts by where it leads, and is not followed: that may be all there is.
    Configs, which are compared by themselves, hidden files and Python's caches are left out. Deeper
    directories have one hash each, so that an unpacked environment is not listed file by file.
    """
    lines_of: dict[str, list[str]] = {}
    for label, model in served.models.items():
        top = model.files.directory
        for number, path in enumerate(_files(top)):
            if number == _MOST_FILES:
                note(f"{label} has more than {_MOST_FILES:,} files: benches compare so many")
                break
            parts = path.relative_to(top).parts
            if path.suffix != ".pbtxt" or parts[:-1] not in ((), ("configs",)):
                name = _printable("/".join((label, *parts[:2])))
                lines_of.setdefault(name, []).append(f"{_printable(str(parts))} {_digest(path)}")
    return {name: _hash("\n".join(lines)) for name, lines in lines_of.items()} | hashes_of(others)


def hashes_of(files: Mapping[str, Path]) -> dict[str, str]:
    """A hash for each of them, by its name here."""
    return {name: _hash(_digest(path)) for name, path in files.items()}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differences(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """A line for each file that is not the same in both; the last one counts what is not named."""
    names = sorted(n for n in {*there, *here} if there.get(n) != here.get(n))
    lines = []
    for name in names[:_NAMED]:
        missing = "is missing here" if name in there else "is not part of the run's"
        lines.append(f"{name} {'differs' if name in there and name in here else missing}")
    return [*lines, f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else lines


def _printable(name: str) -> str:
    """A path that is not UTF-8 can still be stored."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _files(top: Path) -> Iterator[Path]:
    """The files below a directory and the links to directories, always in the same order."""
    waiting = [top]
    while waiting:
        with suppress(OSError):  # only the server may be allowed to read it
            for entry in sorted(waiting.pop().iterdir()):
                if entry.name.startswith(".") or entry.name == "__pycache__":
                    continue
                if entry.is_dir() and not entry.is_symlink():
                    waiting.append(entry)
                elif entry.is_dir() or entry.is_file():
                    yield entry


def _digest(path: Path) -> str:
    try:
        if path.is_dir():
            return _printable(str(path.readlink()))
        size = path.stat().st_size
        digest = hashlib.sha256(str(size).encode())
        with path.open("rb") as file:
            for offset in range(0, size, max(size // _BLOCKS, _BLOCK_BYTES)):
                file.seek(offset)
                digest.update(file.read(_BLOCK_BYTES))
    except OSError as error:
        return str(error.strerror)
    return digest.hexdigest()
