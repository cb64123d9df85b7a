"""What no input may do: a traceback, seconds, a write elsewhere, a process, a connection."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Processor time for up to a mebibyte.
LONGEST_S = 2.0
_CHANGING = frozenset(
    f"os.{name}"
    for name in ("remove", "rename", "mkdir", "rmdir", "truncate", "symlink", "link", "chmod")
) | {"shutil.rmtree"}
_FORBIDDEN = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.fork", "socket.connect"})
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class BadBehaviourError(AssertionError):
    """Neither a result nor a `TunerError`."""


class _Watch:
    """Python's audit hooks cannot be taken off again: one for all, idle but for ``inside``."""

    def __init__(self) -> None:
        self.inside: str | None = None
        self.seen: list[str] = []
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.inside is None:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING:
                self._note(event, path)
        elif event in _CHANGING:
            self._note(event, arguments[0])
        elif event in _FORBIDDEN:
            self.seen.append(f"{event} {arguments!r}")

    def _note(self, event: str, path: Any) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        parent, name = os.path.split(os.fsdecode(path))
        follows = event in ("open", "os.truncate", "os.chmod")
        where = os.path.realpath(os.fsdecode(path) if follows else parent)
        where = where if follows else str(Path(where, name))
        own = self.inside is not None and where.startswith((self.inside, "/dev/null"))
        if not own and "__pycache__" not in where:
            self.seen.append(f"{event} {where}")


_watch: _Watch | None = None


@contextmanager
def watched(directory: Path, longest_s: float = LONGEST_S) -> Iterator[None]:
    """Raises:
    BadBehaviourError: What is inside took long, or touched what is not in ``directory``.
    """
    global _watch  # noqa: PLW0603
    _watch = _watch or _Watch()
    _watch.seen = []
    began = time.process_time()
    _watch.inside = os.path.realpath(directory)
    try:
        yield
    finally:
        _watch.inside = None
    took_s = time.process_time() - began
    if _watch.seen:
        raise BadBehaviourError("; ".join(_watch.seen))
    if took_s > longest_s:
        raise BadBehaviourError(f"took {took_s:.1f} s")
