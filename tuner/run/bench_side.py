"""One of the benches of a run, in a separate process.

The bench builds the job from the same files as the run, and refuses work if its machine, programs,
configs or files differ from those of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner.errors import EnvironmentNotReadyError
from tuner.fleet import Bench, BenchPlace, Post
from tuner.machine.cpus import Cores
from tuner.machine.host import Host
from tuner.machine.process import private_directory
from tuner.meter.benches import BenchRefusedError, BenchTask, Terms
from tuner.meter.session import Session, open_session
from tuner.modelconfig import content
from tuner.modelconfig.base import Base
from tuner.modelconfig.edit import unified_diff
from tuner.modelconfig.schema import new_config
from tuner.prepare.job import Job, Request, prepare
from tuner.prepare.machine_lock import among_neighbours
from tuner.prepare.manifest import with_completed
from tuner.prepare.serving import Serving, serving
from tuner.prepare.timebook import TimeBook
from tuner.prepare.tools import Programs, find_programs
from tuner.progress.events import Silent
from tuner.progress.follower import again_text
from tuner.record.identity import Identity, machine_of, programs_of
from tuner.record.manifest import Manifest
from tuner.record.store import RunStore
from tuner.search.cores import settle_cores
from tuner.search.strategies.designs import designs
from tuner.spec.files import files_of
from tuner.spec.load import load_spec

SHARE_FILES = (
    "the nodes of the cluster must share the directories of specs, models and results, under the "
    "same paths"
)


class BenchEvents(Silent):
    """Sends notes to the run; measurements return as results of the work."""

    def __init__(self, send: Callable[[object], None]) -> None:
        self._send = send

    def note(self, text: str) -> None:
        self._send(text)

    def disturbed(self, what: str, pause_s: float) -> None:
        self._send(again_text(what, pause_s))


@dataclass(frozen=True)
class SeenPrograms:
    """The programs of a bench, for the run's manifest."""

    host: Host
    known_versions: Mapping[str, str]
    known_fingerprint: str

    def versions(self) -> dict[str, str]:
        return dict(self.known_versions)

    def fingerprint(self) -> str:
        return self.known_fingerprint


@dataclass(frozen=True)
class SeenBase:
    """A model's config as the server completes it, serialized for another process."""

    completed: bytes
    overridden: frozenset[str]
    completes: bool
    known: bool

    @classmethod
    def of(cls, base: Base) -> SeenBase:
        completed: bytes = base.completed.SerializeToString()
        return cls(completed, base.overridden, base.completes, base.known)

    def over(self, base: Base) -> Base:
        """The run's ``base``, made from the same file, with these values."""
        completed = new_config()
        completed.ParseFromString(self.completed)
        return replace(
            base,
            completed=completed,
            overridden=self.overridden,
            completes=self.completes,
            known=self.known,
        )


@dataclass(frozen=True)
class SeenServer:
    """What the first bench reports about its server.

    Attributes:
        bases: The configs as the server completes them, by label.
        has_perf_analyzer: perf_analyzer is installed there.
        completed: A note on the fields that the server completed.
        load_s: Seconds for starting the server and loading the models.
        cores: The CPUs of server and load generator.
    """

    bases: Mapping[str, SeenBase]
    has_perf_analyzer: bool
    completed: str
    load_s: float
    cores: Cores


@dataclass
class BenchSide:
    """The state of a bench in its process; each part is made on first use.

    A bench that was restarted begins with an empty state.
    """

    place: BenchPlace
    post: Post
    request: Request
    spec_sha256: str
    stack: ExitStack
    events: BenchEvents = field(init=False)
    book: TimeBook = field(default_factory=TimeBook)
    _programs: tuple[Job, Any] | None = None
    _served: tuple[Serving, Cores] | None = None
    _session: Session | None = None
    _checkpoint: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.events = BenchEvents(self.post.send)

    def programs(self) -> tuple[Job, Any]:
        """The job of the run's spec on this machine, and its programs."""
        if self._programs is None:
            request, enter = self.request, self.stack.enter_context
            if not request.spec.is_file():
                raise EnvironmentNotReadyError(
                    f"{self.place.host} has no {request.spec}", SHARE_FILES
                )
            loaded = load_spec(request.spec, request.overrides)
            if loaded.sha256 != self.spec_sha256:
                there = f"{request.spec} on {self.place.host}"
                raise EnvironmentNotReadyError(f"{there} is not the run's", SHARE_FILES)
            job = prepare(request, loaded)
            programs_ = enter(find_programs(job, request.environment, self.events.note))
            self._programs = job, programs_
        return self._programs

    def served(self, terms: Terms) -> tuple[Serving, Cores]:
        """A server with the current configs; checks first that this bench is like the first one."""
        if self._served is None:
            job, programs = self.programs()
            manifest, enter = terms.manifest, self.stack.enter_context
            if manifest is not None:
                refuse_another(self.place, job, programs, manifest, terms.files)
            run_id = terms.run.name
            neighbours = enter(among_neighbours("run", run_id, job, self.events.note))

            def checkpoint() -> None:
                neighbours.look()
                self.post.stop.checkpoint()

            self._checkpoint = checkpoint
            logs = enter(_logs(terms.run, self.place))
            served = enter(serving(job, programs, logs, self.book))
            if manifest is not None:
                here = with_completed(manifest, served.job)
                manifest.refuse_if_completed_otherwise(here)
                manifest.refuse_if_measured_otherwise(here)
            known = None if manifest is None else manifest.cores
            likely = designs(served.job.space)[:1]
            cores = settle_cores(served, self.events, self.book, checkpoint, known, likely)
            self._served = served, cores
        return self._served

    def session(self, terms: Terms) -> Session:
        """The session of this bench, in the stage of the terms."""
        if self._session is None:
            served, cores = self.served(terms)
            opened = open_session(
                served,
                self.events,
                self.book,
                self._checkpoint,
                manifest=terms.manifest,
                cores=cores,
                reject=self.post.send,
            )
            self._session = self.stack.enter_context(opened)
        self._session.bench.enter(terms.stage)
        return self._session


@dataclass(frozen=True)
class BenchRequest:
    """The argument that opens a bench, sent to its process; the bench reads the spec's file."""

    request: Request
    spec_sha256: str


class SideWork:
    """Work for a bench that does not need a session, or needs the state of the bench."""

    def at(self, side: BenchSide, terms: Terms) -> Any:
        raise NotImplementedError

    def __call__(self, session: Session) -> Any:
        raise NotImplementedError


class Identify(SideWork):
    """Reports the machine and the programs of a bench; starts no server."""

    def at(self, side: BenchSide, terms: Terms) -> SeenPrograms:
        del terms
        _, programs = side.programs()
        host: Host = programs.host
        return SeenPrograms(host, programs.versions(), programs.fingerprint())


class GetReady(SideWork):
    """Serves the current configs, and reports how the server completes them."""

    def at(self, side: BenchSide, terms: Terms) -> SeenServer:
        served, cores = side.served(terms)
        models = served.job.served.models
        bases = {label: SeenBase.of(model.base) for label, model in models.items()}
        seen = served.completed, served.load_s, cores
        return SeenServer(bases, served.job.has_perf_analyzer, *seen)


@contextmanager
def measuring(place: BenchPlace, post: Post, given: BenchRequest) -> Iterator[Bench]:
    """A bench for one run; its work is `BenchTask`."""
    request = replace(given.request, gpus=place.gpus or given.request.gpus)
    with ExitStack() as stack:
        side = BenchSide(place, post, request, given.spec_sha256, stack)

        def do(task: BenchTask) -> Any:
            if isinstance(task.work, SideWork):
                return task.work.at(side, task.terms)
            session = side.session(task.terms)
            return None if task.work is None else task.work(session)

        yield do


@contextmanager
def _logs(run: Path, place: BenchPlace) -> Iterator[Path]:
    """A log directory in the run's, if this machine has it; else one that ends with the bench."""
    logs = RunStore(run).logs
    if logs.is_dir():
        gpus = "".join(f"-gpu{gpu}" for gpu in place.gpus or ())
        cpus = f"-cpu{place.cpus[0]}" if place.cpus else ""
        log_directory = logs / f"{place.host}{gpus}{cpus}"
        log_directory.mkdir(exist_ok=True)
        yield log_directory
        return
    with private_directory() as directory:
        yield directory


def refuse_another(
    place: BenchPlace, job: Job, programs: Programs, manifest: Manifest, files: Mapping[str, str]
) -> None:
    """Raises BenchRefusedError with each difference between this bench and the first one.

    Capacities on different machines are not comparable, so one run must not mix their trials.
    """
    host = programs.host.to_json()
    machine, versions = machine_of(host, host["gpus"]), programs_of(programs.versions())
    here = Identity(machine, versions, fingerprint=programs.fingerprint())
    texts = [
        f"{name}: {theirs} in the run, {mine} there"
        for name, mine, theirs in here.differences(manifest.identity)
    ]
    for label, model in job.served.models.items():
        kept = manifest.models.get(label)
        if kept is None or model.files.sha256 != kept.sha256:
            there = "" if kept is None else kept.text
            texts.append(unified_diff(there, model.files.text, f"{label}/config.pbtxt").rstrip())
    texts += content.differences(files, content.content_of(job.served, files_of(job.spec)))
    if texts:
        raise BenchRefusedError(
            f"the bench on {place}, cannot measure for {manifest.run_id}, since it differs:\n"
            + "\n".join(f"  {line}" for text in texts for line in text.splitlines()),
            "use machines of the same kind, with the same versions and files",
        )
