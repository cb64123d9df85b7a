"""Child processes that are owned: they end with their context, and with this process.

A child leads a process group of its own but stays in our session: a session of its own costs
19 % of throughput on a saturated machine (the kernel shares the CPU between sessions first).
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tuner.errors import EnvironmentNotReadyError
from tuner.machine import guarded_exec

_GROUP_END_S = 2.0  # killed processes are gone within milliseconds
_TAIL_BYTES = 256 * 1024


@contextmanager
def child(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    stdout: IO[bytes] | int,
    leftovers: Sequence[str] = (),
    cpus: Sequence[int] = (),
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs ``argv`` for as long as the context is open; then it and its children are gone.

    The child and all that it started are killed as well when this process dies, whatever
    kills it (about 30 ms are spent on that at the start). The kernel ties a child to the
    *thread* that started it: call this from the main thread, or from one that outlives the child.

    Args:
        argv: Program (absolute path) and its arguments.
        env: The child's whole environment.
        stdout: Where its output and errors go: an open file, or ``subprocess.DEVNULL``.
        leftovers: Glob patterns of files and directories to remove once it has ended.
        cpus: Numbers of those it may run on; empty: on any that this process may.

    Raises:
        EnvironmentNotReadyError: The program cannot be executed.
    """
    if not os.access(argv[0], os.X_OK):
        raise EnvironmentNotReadyError(
            f"cannot execute {argv[0]}", "check the path and its permissions, or run `tune doctor`"
        )
    mark = secrets.token_hex()
    shim = [sys.executable, "-I", "-S", guarded_exec.__file__, str(os.getpid())]
    process = subprocess.Popen(
        [*shim, ",".join(map(str, cpus)), str(len(leftovers)), *leftovers, *argv],
        env={**env, guarded_exec.MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        process_group=0,
    )
    try:
        yield process
    finally:
        _end(process)
        guarded_exec.kill_marked(mark)
        guarded_exec.remove(list(leftovers))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills the group at once, since no child has anything to save, and waits until it is gone."""
    # Once its leader is reaped the group's number may be given to somebody else; then the
    # guard has done the killing.
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + _GROUP_END_S
    while group_members(process.pid) and time.monotonic() < deadline:
        time.sleep(0.005)


def group_members(group: int) -> list[int]:
    """Process ids in a process group, the dead that nobody reaped yet left out."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # "pid (name) state ppid pgrp ..."; the name may hold spaces and brackets
                state, _, pgrp = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(pgrp) == group and state != "Z":
                    members.append(int(entry.name))
    return members


def leave_out_the_middle(path: Path, kept_bytes: int = 8 << 20) -> None:
    """Keeps only the beginning and the end of a larger file; nobody may be writing it."""
    with suppress(FileNotFoundError), path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size > kept_bytes:
            file.seek(size - kept_bytes // 2)
            end = file.read()
            file.seek(kept_bytes // 2)
            file.write(b"\n[%d bytes are left out here]\n" % (size - kept_bytes) + end)
            file.truncate()


def tail(path: Path, lines: int, start: int = 0) -> str:
    """The last ``lines`` lines of a file from byte ``start`` on; empty when there is no file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _TAIL_BYTES, 0))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
