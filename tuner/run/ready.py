"""What a run knows once a server has loaded its models, and the notes for the user then."""

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
    """A server that has loaded the models with their current configs.

    Attributes:
        job: The job over the configs as the server completes them.
        load_s: Seconds for starting the server and loading the models.
        cores: The CPUs of server and load generator.
        here: The server, if this process started it.
    """

    job: Job
    load_s: float
    cores: Cores
    here: Serving | None = None


class MeasuringSite(Protocol):
    """The place where a run measures. The run enters the contexts in this order, each once."""

    def programs(self) -> AbstractContextManager[ProgramFacts]: ...

    def serving(self, store: RunStore, manifest: Manifest) -> AbstractContextManager[Ready]: ...

    def session(
        self, ready: Ready, store: RunStore, manifest: Manifest
    ) -> AbstractContextManager[Session]: ...


def first_notes(job: Job, completed: str, load_s: float, request: Request) -> Iterator[str]:
    """Notes for the user before the first measurement.

    Args:
        completed: A note on the fields that the server completed; empty: none.
        load_s: Seconds for starting the server and loading the models.
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
    yield from sentences(job, FindingSeverity.NOTED)
    yield from replay_notes(job)
    yield from write_notes(job.searched_files) if request.write else ()
