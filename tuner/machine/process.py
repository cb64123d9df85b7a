"""Resources that this process releases: child processes, ports, private directories, containers.

A child leads a separate process group but stays in the session of `tune`: a separate session costs
19 % of throughput on a saturated machine (the kernel shares the CPU between sessions first).
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import IO

from tuner.errors import EnvironmentNotReadyError
from tuner.locking import Lock, lock
from tuner.machine import guarded_exec
from tuner.writing import open_run_file

_GROUP_END_S = 2.0  # killed processes end within milliseconds
_TAIL_BYTES = 256 * 1024
ADDRESS = "127.0.0.1"
#: Prefixes of addresses on this machine.
LOOPBACK = ("127.", "localhost:", "[::1]")
#: Prefix of private directories. A directory with this prefix that is not locked may be removed.
PREFIX = ".tune-private-"
#: Instead of a $TMPDIR with spaces: Triton's Python backend gives paths to a shell without quotes.
_PLAIN = "/tmp"  # noqa: S108 - the directory is private
_YOUNG_S = 60.0  # the owner of a younger directory may not have locked it yet
_PROC = Path("/proc")
_running: list[str] = []
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_START_TIME = 19  # of the fields after the name in proc_pid_stat(5), in clock ticks since boot


class Priority(Enum):
    """Scheduling priority of a child, as far as it is permitted."""

    NORMAL = 0
    #: A lower nice value: a larger share of a busy CPU.
    NICE = 1
    #: Preempts every process of normal priority.
    REAL_TIME = 2


@contextmanager
def child(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    stdout: IO[bytes] | int,
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    leftovers: Sequence[str] = (),
    cpus: Sequence[int] = (),
    priority: Priority = Priority.NORMAL,
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs ``argv`` while the context is open; then kills the child and its descendants.

    They are also killed when this process dies for any reason (which adds about 30 ms to the
    start). The kernel ties a child to the *thread* that started it: call this from the main
    thread, or from one that outlives the child.

    Args:
        argv: Program (absolute path) and its arguments.
        env: The complete environment of the child.
        stdout: Destination of its output and errors: an open file, or ``subprocess.DEVNULL``.
        stdin: Its standard input.
        leftovers: Glob patterns of files and directories to remove after its end.
        cpus: Numbers of the CPUs it may run on; empty: all that this process may use.
        priority: Its priority; if that is not permitted, the next lower one.

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
        [
            *(*shim, ",".join(map(str, cpus)), str(priority.value)),
            *(str(len(leftovers)), *leftovers, *argv),
        ],
        env={**env, guarded_exec.MARK: mark},
        stdin=stdin,
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
    """Kills the process group at once, since no child has data to save, and waits for its end."""
    # After the leader is reaped, the kernel may reuse the group's number; in that case the guard
    # has killed the group already.
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + _GROUP_END_S
    while group_members(process.pid) and time.monotonic() < deadline:
        time.sleep(0.005)


def group_members(group: int) -> list[int]:
    """Process ids in a process group, without zombies."""
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
    """Cuts the middle out of a file above ``kept_bytes``; no process may be writing the file."""
    if not path.exists():
        return
    with (
        suppress(EnvironmentNotReadyError),
        open_run_file(path) as file,
    ):  # a link is not a log of tune
        size = file.seek(0, os.SEEK_END)
        if size > kept_bytes:
            file.seek(size - kept_bytes // 2)
            end = file.read()
            file.truncate(kept_bytes // 2)
            file.write(b"\n[%d bytes are left out here]\n" % (size - kept_bytes) + end)


def tail(path: Path, lines: int, start: int = 0) -> str:
    """The last ``lines`` lines of a file, from byte ``start`` on; empty if there is no file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _TAIL_BYTES, 0))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


@contextmanager
def free_ports(count: int) -> Iterator[tuple[int, ...]]:
    """Reserves distinct free ports of 127.0.0.1 while the context is open.

    Leave the context just before the server starts. Another process may still take a port before
    the server binds it: the caller tries again if the server's log says that an address is in use.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for bound in sockets:
            bound.bind((ADDRESS, 0))
        yield tuple(int(bound.getsockname()[1]) for bound in sockets)


@contextmanager
def private_directory() -> Iterator[Path]:
    """A new locked directory while the context is open.

    Also removes the private directories of killed processes, which are not locked.
    """
    given = tempfile.gettempdir()
    parent = given if shlex.quote(given) == given else _PLAIN
    _remove_abandoned(Path(parent))
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=parent) as name:
        descriptor = os.open(name, os.O_RDONLY)
        try:
            lock(descriptor)
            yield Path(name)
        finally:
            os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    for directory in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # in use, of another user, or already removed
            if (
                abs(time.time() - directory.stat().st_mtime) < _YOUNG_S
            ):  # the clock may have been set back
                continue
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                ours = os.fstat(descriptor).st_uid == os.geteuid()
                if ours and lock(descriptor) is Lock.ACQUIRED:
                    shutil.rmtree(directory)
            finally:
                os.close(descriptor)


@contextmanager
def tracked_container(container_id: str) -> Iterator[None]:
    """While the context is open, `is_inside` is true for the container's processes."""
    _running.append(container_id)
    try:
        yield
    finally:
        _running.remove(container_id)


def is_inside(pid: int) -> bool:
    """Whether a process runs in a tracked container.

    Docker and Podman put a container's processes in a control group with the container's id in its
    name (``docker-ID.scope``, ``libpod-ID.scope``, ``docker/ID``). Always false if the engine is on
    another machine or in a virtual machine, or if this process cannot see other processes.
    """
    if not _running:
        return False
    with suppress(OSError):
        groups = (_PROC / str(pid) / "cgroup").read_text()
        return any(container_id in groups for container_id in _running)
    return False


def current_owner() -> str:
    """Identifies this process: boot id, PID namespace, process id, start time."""
    pid = os.getpid()
    return f"{boot_id()} {_namespace()} {pid} {_started(pid)}"


def owner_gone(owner: str, *, ended: bool) -> bool:
    """Whether the process has certainly ended; False if this process cannot know.

    Args:
        owner: A value of `current_owner`.
        ended: The owner's container has ended. A running container with another boot id belongs
            to another machine that uses the same engine, since a reboot ends all containers.
    """
    try:
        boot, namespace, pid, started = owner.split()
        number = int(pid)
    except ValueError:
        return False  # not a value of `current_owner`
    if boot != boot_id():
        return ended
    return namespace == _namespace() and _started(number) != started


def boot_id() -> str:
    """The id that Linux gave this machine at its last start."""
    return _BOOT_ID.read_text().strip()


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _started(pid: int) -> str:
    """Start time of a process, in clock ticks since boot; empty if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[_START_TIME]
