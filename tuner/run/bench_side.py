"""A bench of a run that has several, in a process of its own.

It builds the job from the same files as the run, and refuses, with the difference, where machine,
programs, configs or files are not those of the run.
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
from tuner.record.manifest import Identity, Manifest, machine_of, programs_of
from tuner.record.store import RunStore
from tuner.search.cores import settle_cores
from tuner.search.strategies.designs import designs
from tuner.spec.files import files_of
from tuner.spec.load import load_spec

_SHARE = (
    "the nodes of the cluster must share the directories of specs, models and results, under the "
    "same paths"
)


class BenchEvents(Silent):
    """Tells notes; what a bench measures comes back with its work."""

    def __init__(self, tell: Callable[[object], None]) -> None:
        self._tell = tell

    def note(self, text: str) -> None:
        self._tell(text)

    def disturbed(self, what: str, pause_s: float) -> None:
        self._tell(again_text(what, pause_s))


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
    """A model's config as the server completes it; messages travel as bytes."""

    completed: bytes
    overridden: frozenset[str]
    completes: bool
    known: bool

    @classmethod
    def of(cls, base: Base) -> SeenBase:
        completed: bytes = base.completed.SerializeToString()
        return cls(completed, base.overridden, base.completes, base.known)

    def over(self, base: Base) -> Base:
        """For the run's own ``base``, of the same file."""
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
    """What the run knows of the server of its first bench; it travels, so it holds no job.

    Attributes:
        bases: The models' configs, by label.
        completed, load_s: See `tuner.run.ready.Ready`.
    """

    bases: Mapping[str, SeenBase]
    has_perf_analyzer: bool
    completed: str
    load_s: float
    cores: Cores


@dataclass
class BenchSide:
    """What a bench has in its own process: found and started when it is first needed.

    A bench that was started again finds nothing, and begins anew.
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
        self.events = BenchEvents(self.post.tell)

    def programs(self) -> tuple[Job, Any]:
        """The job of the run's spec on this machine, and its programs."""
        if self._programs is None:
            request, enter = self.request, self.stack.enter_context
            if not request.spec.is_file():
                raise EnvironmentNotReadyError(f"{self.place.host} has no {request.spec}", _SHARE)
            loaded = load_spec(request.spec, request.overrides)
            if loaded.sha256 != self.spec_sha256:
                there = f"{request.spec} on {self.place.host}"
                raise EnvironmentNotReadyError(f"{there} is not the run's", _SHARE)
            job = prepare(request, loaded)
            programs_ = enter(find_programs(job, request.environment, self.events.note))
            self._programs = job, programs_
        return self._programs

    def served(self, terms: Terms) -> tuple[Serving, Cores]:
        """A server with the models as they are, once this bench is like the run's."""
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
        """A session on this bench, for work of the stage that the terms name."""
        if self._session is None:
            served, cores = self.served(terms)
            opened = open_session(
                served,
                self.events,
                self.book,
                self._checkpoint,
                manifest=terms.manifest,
                cores=cores,
                reject=self.post.tell,
            )
            self._session = self.stack.enter_context(opened)
        self._session.bench.enter(terms.stage)
        return self._session


@dataclass(frozen=True)
class BenchRequest:
    """What a bench is opened with. It travels, and holds no spec: its file is read there."""

    request: Request
    spec_sha256: str


class SideWork:
    """Work for a bench that needs more than a session, or less."""

    def at(self, side: BenchSide, terms: Terms) -> Any:
        raise NotImplementedError

    def __call__(self, session: Session) -> Any:
        raise NotImplementedError


class Identify(SideWork):
    """Says what machine and programs a bench has; starts no server."""

    def at(self, side: BenchSide, terms: Terms) -> SeenPrograms:
        del terms
        _, programs = side.programs()
        host: Host = programs.host
        return SeenPrograms(host, programs.versions(), programs.fingerprint())


class GetReady(SideWork):
    """Serves the models as they are, and says what became of them."""

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
    """Beside those of the run, where this machine has them; else for as long as the bench lives."""
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
    """BenchRefusedError with each way in which a bench is not like the run's.

    Loads that two machines sustain cannot be compared, so their trials must not meet in one run.
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
            "use machines of one kind, with the same versions and the same files",
        )
