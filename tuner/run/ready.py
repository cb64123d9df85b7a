"""What a run knows once a server has its models, and what its user should know then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from tuner.checks.table import sentences
from tuner.machine.cpus import Cores
from tuner.meter.session import Session
from tuner.prepare.job import Job, Request
from tuner.prepare.manifest import ProgramFacts
from tuner.prepare.sending import sending_notes
from tuner.prepare.serving import Serving
from tuner.prepare.tools import client_notes
from tuner.record.manifest import Manifest
from tuner.record.store import RunStore
from tuner.search.estimate import SLOW_LOAD_S, Seen, foresee_run, seen_before
from tuner.search.window_notes import replay_notes
from tuner.spec.mistakes import FindingSeverity
from tuner.writeback.target import write_notes


@dataclass(frozen=True)
class Ready:
    """A server has the models as they are.

    Attributes:
        job: With the space over the configs as the server completes them.
        load_s: Seconds that starting it and loading the models took.
        here: It, where it is a server of this process.
    """

    job: Job
    load_s: float
    cores: Cores
    here: Serving | None = None


class Ground(Protocol):
    """The place at which a run measures. Its steps are entered in this order, each once."""

    def programs(self) -> AbstractContextManager[ProgramFacts]: ...

    def serving(self, store: RunStore) -> AbstractContextManager[Ready]: ...

    def session(
        self, ready: Ready, store: RunStore, manifest: Manifest
    ) -> AbstractContextManager[Session]: ...


def beforehand(job: Job, completed: str, load_s: float, request: Request) -> Iterator[str]:
    """What the user should know before the first measurement.

    ``completed``: what the server completed, in a sentence.
    """
    if completed:
        yield completed
    yield from client_notes(job)
    yield from sending_notes(job, request.environment, costly_only=True)
    if load_s >= SLOW_LOAD_S:
        yield f"loading the model took {load_s:.0f} s"
    if request.resume is None:
        seen = seen_before(request.output, job) or Seen(loads_s=(load_s,))
        yield foresee_run(request.output, job, seen).sentence
    yield from sentences(job.case, FindingSeverity.NOTED)
    yield from replay_notes(job)
    yield from write_notes(job.searched_files) if request.write else ()
