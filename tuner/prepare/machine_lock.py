"""Other `tune`s: none may work on the same models, and those that disturb are reported.

Who measures has a locked file in the machine's temporary directory, for as long as its process
lives.
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
#: Files of ours: process id and a random number; ``new`` until it is written.
_NAME = re.compile(r"\d+-[0-9a-f]{8}\.(json|new)")
#: A file of ours is a tenth of it.
_MAX_BYTES = 10_000
#: How often others are looked for while something is measured.
POLL_S = 5.0


class Neighbours:
    """Others that measure on this machine; each is noted once. Benches of a run are one."""

    def __init__(self, mine: LockHolder, ours: Path | None, note: Callable[[str], None]) -> None:
        self._mine = mine
        self._ours = ours
        self._note = note
        self._seen = set[LockHolder]()
        self._looked: float | None = None

    def look(self) -> None:
        """Cheap enough for a checkpoint: it looks every `POLL_S`."""
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
                    f"{other.text} measures on this machine too: each disturbs the other; stop "
                    "one, and go on with it afterwards"
                )


@contextmanager
def among_neighbours(
    what: str, run: str, job: Job, note: Callable[[str], None]
) -> Iterator[Neighbours]:
    """Lets others know that this one measures, and looks who else does.

    ``what``: the command that measures. ``note`` receives a sentence about each that disturbs.
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
    """Keeps others from tuning these models: holds locks on their directories, without a file.

    Where the file system has no locks, only runs on the same machine are kept apart.

    Args:
        job: Its searched models are locked; those that are only loaded are not.
        reading: The configs are measured and not searched: several may do that at once.

    Raises:
        EnvironmentNotReadyError: Another one does, with its process, run and beginning.
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
            unknown = "another tune, of another machine or container"
            raise EnvironmentNotReadyError(
                f"the model in {directory} is being measured by {first.text if first else unknown}",
                "wait for it or stop it",
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
    """A `tune` that measures.

    Attributes:
        what: Its command: run, check.
        run: Id of the run or check.
        models: Directories of the models it searches, links resolved.
        gpus: Its server may see: ``all``, ``none``, or numbers.
        started_at: ISO 8601, UTC.
        cpus: It and what it starts may use, by number; empty: not known.
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
        """They share the CPU, mostly; that disturbs little where each has its own GPUs."""
        if isinstance(self.gpus, tuple) and isinstance(other.gpus, tuple):
            return bool(set(self.gpus) & set(other.gpus))
        no_gpu = "none" in (self.gpus, other.gpus) or not has_gpu()
        cpus_apart = self.cpus and other.cpus and not {*self.cpus} & {*other.cpus}
        return not (no_gpu and cpus_apart)


@contextmanager
def registered(mine: LockHolder) -> Iterator[Path | None]:
    """Announces a measurement to other processes while the context is open.

    Returns:
        Its file; None where the machine has no place for it: measuring goes on without.
    """
    path = None
    with ExitStack() as stack:
        with suppress(OSError):
            path = _entered(mine, stack)
        yield path


def others(ours: Path | None) -> list[LockHolder]:
    """All that measure on this machine now, except the one whose file is ``own``."""
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
    """A descriptor of the registry, by which alone it is used: its name is anybody's to change.

    Raises:
        OSError: It is not there, is a link, or is neither ours nor root's nor kept as a shared
            temporary directory is: whoever owns a file there removes it.
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
    """Named at last, so that nobody sees it before it is locked."""
    made = False
    with suppress(FileExistsError):
        registry().mkdir()
        made = True
    directory = stack.enter_context(_opened())
    if made and not os.listdir(directory):  # noqa: PTH208 (a descriptor)
        os.fchmod(directory, 0o1777)  # anybody's, as the temporary directory is
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
    """What a file says of a process of its owner; what a dead one of ours left is removed."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW
    descriptor = os.open(name, flags, dir_fd=directory)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            return []
        content = os.read(descriptor, _MAX_BYTES)
        if name.endswith(".new") and not content:  # of a kill before it was written
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
