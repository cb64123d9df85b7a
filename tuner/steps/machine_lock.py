"""Other `tune`s: none may work on the same models, and those that disturb are reported."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError
from tuner.locking import Lock, lock
from tuner.run.measuring import Measuring, others, registered
from tuner.steps.job import Job

#: They measure a model beside a run of it.
_BESIDE = ("worker", "doctor")
#: How often others are looked for while something is measured.
POLL_S = 5.0


class Neighbours:
    """Others that measure on this machine; each is reported once."""

    def __init__(self, mine: Measuring, own: Path | None, note: Callable[[str], None]) -> None:
        self._mine = mine
        self._own = own
        self._note = note
        self._seen: dict[Measuring, None] = {}
        self._looked: float | None = None

    def look(self) -> None:
        """Cheap enough for a checkpoint: it looks every `POLL_S`."""
        now = time.monotonic()
        if self._looked is not None and now - self._looked < POLL_S:
            return
        self._looked = now
        for other in others(self._own):
            if other not in self._seen and self._mine.disturbs(other):
                self._seen[other] = None
                self._note(f"{other.text} measures on this machine too: each disturbs the other")

    @property
    def remarks(self) -> tuple[str, ...]:
        """For the result, one sentence each."""
        return tuple(
            f"Disturbed: {other.text} measured on this machine at the same time."
            for other in self._seen
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
    mine = Measuring(os.getpid(), what, run, models, job.spec.server.gpus, started)
    with registered(mine) as own:
        neighbours = Neighbours(mine, own, note)
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
        held = lock(descriptor, shared=reading)
        first = _first_on(directory, reading=reading) if held is not Lock.HELD else None
        if held is Lock.HELD_BY_ANOTHER or first is not None:
            unknown = "another tune, of another machine or container"
            raise EnvironmentNotReadyError(
                f"the model in {directory} is being measured by {first.text if first else unknown}",
                "wait for it or stop it; `tune worker` helps a run from another GPU",
            )
        yield
    finally:
        os.close(descriptor)


def _directories(job: Job) -> list[Path]:
    return [job.served.models[label].files.directory for label in job.searched]


def _first_on(directory: Path, *, reading: bool) -> Measuring | None:
    model = str(directory.resolve())
    there = (o for o in others(None) if model in o.models and o.what not in _BESIDE)
    return next((o for o in there if not (reading and o.what == "check")), None)
