"""Other `tune` processes: none may tune the same models, and a note names those that disturb.

Each process that measures holds a locked file in the machine's temporary directory while it lives.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError
from tuner.facts import Facts
from tuner.locking import Lock, lock
from tuner.machine.host import has_gpu
from tuner.prepare.job import Job
from tuner.record.reading import UnreadableFileError, read_received

_DIRECTORY = "tune-measuring"
#: Names of the files: process id and a random number; ``new`` until the content is written.
_NAME = re.compile(r"\d+-[0-9a-f]{8}\.(json|new)")
#: Larger files are ignored; a file of `tune` has a tenth of this size.
_MAX_BYTES = 10_000
#: Period of the search for other processes during measurements, in seconds.
POLL_S = 5.0


class Neighbours:
    """Other runs and checks that measure on this machine; each is reported once, by a note.

    Benches of the same run do not count.
    """

    def __init__(self, mine: LockHolder, ours: Path | None, note: Callable[[str], None]) -> None:
        self._mine = mine
        self._ours = ours
        self._note = note
        self._seen = set[LockHolder]()
        self._looked: float | None = None

    def look(self) -> None:
        """Reports new neighbours; looks at most once every `POLL_S`, so that calls are cheap."""
        now = time.monotonic()
        if self._looked is not None and now - self._looked < POLL_S:
            return
        self._looked = now
        for other in others(self._ours):
            if (
                other.run != self._mine.run
                and other not in self._seen
                and (self._mine.disturbs(other))
            ):
                self._seen.add(other)
                self._note(
                    f"{other.text} also measures on this machine, and each disturbs the other: "
                    "stop one of them, and resume it afterwards"
                )


@contextmanager
def among_neighbours(
    what: str, run: str, job: Job, note: Callable[[str], None]
) -> Iterator[Neighbours]:
    """Announces this measurement to other `tune` processes, and looks for theirs.

    Args:
        what: The command that measures, such as `check`.
        run: Id of the run or check.
        note: Receives a sentence about each process that disturbs this one.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    models = tuple(str(directory.resolve()) for directory in _directories(job))
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    mine = LockHolder(os.getpid(), what, run, models, job.spec.server.gpus, started, cpus)
    with registered(mine) as ours:
        neighbours = Neighbours(mine, ours, note)
        neighbours.look()
        yield neighbours


@contextmanager
def only_one_on(job: Job, *, reading: bool = False) -> Iterator[None]:
    """Locks the directories of the searched models, so that no other run tunes them.

    On a file system without locks, only runs of the same machine exclude each other.

    Args:
        job: The job with the searched models; models that are only loaded are not locked.
        reading: The configs are measured, not searched: several processes may do that at once.

    Raises:
        EnvironmentNotReadyError: Another process holds a lock; names its run, process and start.
    """
    with ExitStack() as stack:
        for directory in _directories(job):
            stack.enter_context(_only_one_in(directory, reading=reading))
        yield


@contextmanager
def _only_one_in(directory: Path, *, reading: bool) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        state = lock(descriptor, shared=reading)
        first = _first_on(directory, reading=reading) if state is not Lock.ACQUIRED else None
        if state is Lock.BUSY or first is not None:
            unknown = "a tune process in another container or on another machine"
            raise EnvironmentNotReadyError(
                f"the model in {directory} is being measured by {first.text if first else unknown}",
                "wait until it ends, or stop it",
            )
        yield
    finally:
        os.close(descriptor)


def _directories(job: Job) -> list[Path]:
    return [job.served.models[label].files.directory for label in job.searched]


def _first_on(directory: Path, *, reading: bool) -> LockHolder | None:
    model = str(directory.resolve())
    there = (o for o in others(None) if model in o.models)
    return next((o for o in there if not (reading and o.what == "check")), None)


@dataclass(frozen=True)
class LockHolder(Facts):
    """A `tune` process that measures.

    Attributes:
        pid: Its process id.
        what: Its command: run or check.
        run: Id of the run or check.
        models: Directories of the models that it searches, links resolved.
        gpus: GPUs that its server may see: ``all``, ``none``, or numbers.
        started_at: Start time, ISO 8601, UTC.
        cpus: Numbers of the CPUs that it and its child processes may use; empty: not known.
    """

    pid: int
    what: str
    run: str
    models: tuple[str, ...]
    gpus: str | tuple[int, ...]
    started_at: str
    cpus: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """``tune run 20250301-... (pid 7, since 2025-03-01 10:00 UTC)``."""
        since = self.started_at[:16].replace("T", " ")
        return f"tune {self.what} {self.run} (pid {self.pid}, since {since} UTC)"

    def disturbs(self, other: LockHolder) -> bool:
        """Whether both share GPUs or CPUs; with separate GPUs, shared CPUs disturb little."""
        if isinstance(self.gpus, tuple) and isinstance(other.gpus, tuple):
            return bool(set(self.gpus) & set(other.gpus))
        no_gpu = "none" in (self.gpus, other.gpus) or not has_gpu()
        cpus_apart = self.cpus and other.cpus and not {*self.cpus} & {*other.cpus}
        return not (no_gpu and cpus_apart)


@contextmanager
def registered(mine: LockHolder) -> Iterator[Path | None]:
    """Announces a measurement to other processes while the context is open.

    Yields:
        The file of the announcement; None if it cannot be written, which is no error.
    """
    path = None
    with ExitStack() as stack:
        with suppress(OSError):
            path = _entered(mine, stack)
        yield path


def others(ours: Path | None) -> list[LockHolder]:
    """All processes that measure on this machine now, except the one with the file ``ours``."""
    holders: list[LockHolder] = []
    with suppress(OSError), _opened() as directory:
        for name in sorted(filter(_NAME.fullmatch, os.listdir(directory))):  # noqa: PTH208
            if ours is None or name != ours.name:
                with suppress(OSError, ValueError, RecursionError, UnreadableFileError):
                    holders += _alive(directory, name)
    return holders


def registry() -> Path:
    return Path(tempfile.gettempdir()) / _DIRECTORY


@contextmanager
def _opened() -> Iterator[int]:
    """A descriptor of the registry directory.

    All access uses the descriptor, since other users may rename or replace the directory.

    Raises:
        OSError: The directory does not exist, is a link, or belongs to another user and lacks the
            sticky bit, so that its owner could remove files.
    """
    descriptor = os.open(registry(), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if status.st_uid not in (0, os.geteuid()) and not status.st_mode & stat.S_ISVTX:
            raise PermissionError(registry())
        yield descriptor
    finally:
        os.close(descriptor)


def _entered(mine: LockHolder, stack: ExitStack) -> Path:
    """Writes and locks a file, then gives it its final name, by which others find it."""
    made = False
    with suppress(FileExistsError):
        registry().mkdir()
        made = True
    directory = stack.enter_context(_opened())
    if made and not os.listdir(directory):  # noqa: PTH208 (a descriptor)
        os.fchmod(directory, 0o1777)  # as the temporary directory itself
    name = f"{mine.pid}-{secrets.token_hex(4)}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(f"{name}.new", flags, 0o644, dir_fd=directory)
    stack.callback(os.close, descriptor)
    stack.callback(_remove, directory, f"{name}.json")
    lock(descriptor)
    os.write(descriptor, json.dumps(mine.to_json()).encode())
    os.rename(f"{name}.new", f"{name}.json", src_dir_fd=directory, dst_dir_fd=directory)
    return registry() / f"{name}.json"


def _remove(directory: int, name: str) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=directory)


def _alive(directory: int, name: str) -> Sequence[LockHolder]:
    """The process that a file announces, if it lives; removes the file of a dead process."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW
    descriptor = os.open(name, flags, dir_fd=directory)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            return []
        content = os.read(descriptor, _MAX_BYTES)
        if name.endswith(".new") and not content:  # its process was killed before it wrote
            if not Path("/proc", name.partition("-")[0]).exists():
                _remove(directory, name)
            return []
        claim = read_received(name, json.loads(content), LockHolder.from_json)
        if lock(descriptor, shared=True) is not Lock.BUSY:
            _remove(directory, name)
            return []
    finally:
        os.close(descriptor)
    return [claim] if Path(f"/proc/{claim.pid}").stat().st_uid == status.st_uid else []
