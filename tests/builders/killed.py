"""A process that is killed at one of the calls that change files."""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

#: All that a write does to the disk; a kill comes before each, and in the middle of each `write`.
CALLS = [
    (os, "open"),
    (os, "mkdir"),
    (os, "write"),
    (os, "fsync"),
    (os, "ftruncate"),
    (os, "fchmod"),
    (os, "close"),
    (fcntl, "flock"),
    (Path, "replace"),
    (Path, "unlink"),
]


class Killer:
    """Runs functions in processes that are killed, forked from a process without threads.

    A fork of the tests' process may wait forever for a lock that another thread had at that moment.
    """

    def __enter__(self) -> Killer:
        command = [sys.executable, __file__]
        self._forks = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, *_: object) -> None:
        self._forks.communicate()

    def killed_at(self, point: int, act: Callable[[], object]) -> bool:
        """Whether ``act``, which can be pickled, is killed at its call ``point``, from 0."""
        assert self._forks.stdin is not None
        assert self._forks.stdout is not None
        pickle.dump((point, act), self._forks.stdin)
        self._forks.stdin.flush()
        code = os.waitstatus_to_exitcode(pickle.load(self._forks.stdout))
        assert code in (0, -signal.SIGKILL), "the child failed"
        return code != 0


def fork_each() -> None:
    """Forks a process for each function from standard input, and writes how they ended."""
    with suppress(EOFError):
        while True:
            point, act = pickle.load(sys.stdin.buffer)
            child = os.fork()
            if not child:
                _act(point, act)
            _, status = os.waitpid(child, 0)
            pickle.dump(status, sys.stdout.buffer)
            sys.stdout.flush()


def _act(point: int, act: Callable[[], object]) -> None:
    left = iter(range(point, -1, -1))
    os.fsync = lambda descriptor: None  # a kill loses nothing: no power cut
    for owner, name in CALLS:
        setattr(owner, name, counted(getattr(owner, name), left, in_half=name == "write"))
    code = 1
    try:
        act()
        code = 0
    finally:
        os._exit(code)


def counted(call: Any, left: Iterator[int], *, in_half: bool) -> Any:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if next(left, None) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if in_half and next(left, None) == 0:
            descriptor, data = args
            call(descriptor, bytes(data)[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **kwargs)

    return wrapped


if __name__ == "__main__":
    fork_each()
