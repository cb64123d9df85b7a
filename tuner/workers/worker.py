"""`tune worker`: measures for a run that another `tune` keeps.

    load_spec ─> find_offer ─> refuse another spec, configs, machine ─> find_programs ─> serving
              ─> refuse other files ─> open_session ─> search

It brings its own spec, which must mean what the run's does. It proposes by the run's strategy,
measures as the run does, and puts whole trials into the study. The run takes them over; see
`tuner.search.searcher`.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.bench.events import Events
from tuner.bench.job import Job, job_from
from tuner.bench.machine_lock import among_neighbours
from tuner.bench.manifest import with_completed
from tuner.bench.serving import serving
from tuner.bench.session import Session, open_session
from tuner.bench.timebook import TimeBook
from tuner.bench.tools import Programs, find_programs
from tuner.errors import EnvironmentNotReadyError, InterruptedRunError, SpecError, TunerError
from tuner.machine.host import Host
from tuner.machine.process import private_directory
from tuner.machine.stop import Stop, explain_error
from tuner.modelconfig import content
from tuner.modelconfig.edit import unified_diff
from tuner.record.manifest import Identity, Manifest, machine_of, programs_of
from tuner.score.trial import Trial, Worker
from tuner.search.cores import settle_cores
from tuner.search.searcher import JoinedSearcher
from tuner.search.searching import search
from tuner.search.strategies.registry import STRATEGIES
from tuner.search.study.files import ask
from tuner.search.study.offer import Offer, find_offer
from tuner.search.study.record import StudyRecord
from tuner.space.build import refuse_empty
from tuner.spec.fields import Gpus
from tuner.spec.load import LoadedSpec, load_spec
from tuner.spec.meaning import differences, files_of, meaning
from tuner.spec.mistakes import MOST_SHOWN
from tuner.spec.model import Spec
from tuner.spec.units import Percent
from tuner.triton.launchers import host_of

_COPY = "copy the run's models, and the files that its spec names, as they are, wherever they lie"
#: How often a worker that waits, or is about to measure, looks whether the search is over.
POLL_S = 1.0


@dataclass(frozen=True)
class JoinRequest:
    """What the user asked for on the command line.

    Attributes:
        spec: The worker's own; it measures for the newest run of these models that searches.
        storage: SQLAlchemy URL of the Optuna storage.
        run: Id of the run to measure for instead.
        gpus: GPUs this worker's server may see; None leaves it to the spec.
        logs: Directory for the server's log; None keeps none.
        overrides: Values of the spec set instead, each as ``PATH=VALUE``.
        environment: Variables for child processes and for finding programs.
    """

    spec: Path
    storage: str
    run: str | None = None
    gpus: Gpus | None = None
    logs: Path | None = None
    overrides: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Joined:
    """A worker that came to its end, with the trials that it measured."""

    run: str
    trials: tuple[Trial, ...]


class _SearchOverError(InterruptedRunError):
    """The run's search ended while something was measured for it."""


def join(request: JoinRequest, events: Events) -> Joined:
    """Measures until the run's search is over.

    Raises:
        SpecError: There is no such run to join, or the spec, or a model's config or file, is
            another one here.
        EnvironmentNotReadyError: The storage, the repository or a program is missing, or this
            machine is not like the run's.
        InterruptedRunError: The user stopped it; the candidate it measured is free again.
    """
    stop = Stop(events.note)
    with stop.listening():
        try:
            return _join(request, events, stop)
        except Exception as error:
            # A library makes another error of an interruption that comes up in it.
            interrupted = isinstance(error, InterruptedRunError)
            if not stop.requested or (isinstance(error, TunerError) and not interrupted):
                told = explain_error(error, request.logs or Path())
                raise told from (None if told is error else error)
            hint = "what it was measuring is free again; the same command joins again"
            raise InterruptedRunError("interrupted", hint) from None


def _join(request: JoinRequest, events: Events, stop: Stop) -> Joined:
    loaded = load_spec(request.spec, request.overrides)
    refuse_a_shared_server(loaded.spec)
    offer = find_offer(request.storage, request.run or loaded.spec.name)
    run = offer.manifest.run_id
    refuse_another_spec(loaded, offer)
    job = job_from(loaded, spec_for(offer, loaded.spec, request.gpus), request.environment)
    refuse_empty(job.space)
    refuse_other_configs(job, offer.manifest)
    refuse_another_host(offer.manifest, host_of(job.spec, request.environment))
    with (
        among_neighbours("worker", run, job, events.note) as neighbours,
        find_programs(job, request.environment, events.note) as programs,
        _logs(request.logs) as logs,
    ):
        refuse_another_machine(offer.manifest, programs)
        gpus = job.spec.server.gpus
        worker = Worker(
            platform.node(), gpus if isinstance(gpus, str) else ",".join(map(str, gpus))
        )
        book = TimeBook()
        with serving(job, programs, logs, book, events.step) as served:
            job = served.job
            here = with_completed(offer.manifest, job)
            offer.manifest.refuse_if_completed_otherwise(here)
            offer.manifest.refuse_if_measured_otherwise(here)
            objective = job.spec.objective
            with StudyRecord(
                request.storage, job.spec.name, run, job.space, objective, worker, events.note
            ) as record:

                def stopped() -> None:
                    neighbours.look()
                    stop.checkpoint()

                checkpoint = _Checkpoint(record, stopped)
                refuse_other_files(job, run, ask(record, checkpoint.wait, events.note))
                strategy = STRATEGIES[job.spec.search.strategy](job.space, job.spec)
                searcher = JoinedSearcher(
                    job.space, strategy, record, offer.trials, checkpoint.wait, events.note
                )
                events.started(Path(run), offer.trials, job.space.size().count)
                cores = settle_cores(served, events, book, checkpoint, offer.manifest.cores)
                with open_session(
                    served, events, book, checkpoint, manifest=offer.manifest, cores=cores
                ) as session:
                    measure(session, searcher)
                return Joined(run, tuple(searcher.mine))


def measure(session: Session, searcher: JoinedSearcher) -> None:
    """Measures trials until the run's search is over, even if that is in the middle of one."""
    job = replace(session.job, spec=without_limits(session.spec))
    try:
        search(replace(session, job=job), searcher)
    except _SearchOverError:
        session.events.note("the search ended before this trial did")


def without_limits(spec: Spec) -> Spec:
    """The run alone counts trials, time and failures."""
    none = {"trials": sys.maxsize, "time": None, "max_failed": Percent(1.0)}
    return spec.model_copy(update={"budget": spec.budget.model_copy(update=none)})


def spec_for(offer: Offer, own: Spec, gpus: Gpus | None) -> Spec:
    """The worker's own spec with what the run alone decides, and with the GPUs asked for."""
    budget = own.budget.model_copy(update={"trials": offer.trials})
    search = own.search.model_copy(update={"seed": offer.manifest.seed})
    server = own.server.model_copy(update={} if gpus is None else {"gpus": gpus})
    return own.model_copy(update={"budget": budget, "search": search, "server": server})


def refuse_a_shared_server(spec: Spec) -> None:
    if not spec.server.managed:
        raise SpecError(
            "the server is one that somebody else runs (server.mode: remote)",
            "a worker needs a server of its own: tune with mode local or docker",
        )


def refuse_another_spec(loaded: LoadedSpec, offer: Offer) -> None:
    """SpecError with each field in which the worker's spec means something else than the run's."""
    found = differences(offer.meaning, meaning(loaded.spec))
    told = [loaded.mistake(f.location, f.message) for f in found]
    if told:
        told.sort(key=lambda m: (m.line, m.column))
        raise SpecError(
            f"{loaded.path} does not say what {offer.manifest.run_id} measures:\n"
            + "\n".join(f"  {mistake}" for mistake in told[:MOST_SHOWN]),
            "give the worker the run's spec, and the same --set; only repository, programs, CPUs, "
            "GPUs, and the places of mounts and files may be this machine's own",
        )


def refuse_other_configs(job: Job, manifest: Manifest) -> None:
    """SpecError with the diff of a config that is not the run's."""
    for label, model in job.served.models.items():
        kept = manifest.models.get(label)
        if kept is None or model.files.sha256 != kept.sha256:
            there = "" if kept is None else kept.text
            diff = unified_diff(there, model.files.text, "config.pbtxt")
            raise SpecError(
                f"{model.files.path} is not the config that {manifest.run_id} measures:\n{diff}",
                _COPY,
            )


def refuse_other_files(job: Job, run: str, there: Mapping[str, str] | None) -> None:
    """SpecError with the files that are not the run's; None where its search is over anyway."""
    if there is None:
        return
    here = content.content_of(job.served, files_of(job.spec))
    if differing := content.differences(there, here):
        raise SpecError(
            f"the files here are not those that {run} measures:\n"
            + "\n".join(f"  {difference}" for difference in differing),
            _COPY,
        )


def refuse_another_host(manifest: Manifest, host: Host) -> None:
    """Like `refuse_another_machine`, by what is known before a program of the run is started."""
    facts = host.to_json()
    _refuse_if_different(manifest, Identity(machine_of(facts, facts["gpus"])))


def refuse_another_machine(manifest: Manifest, programs: Programs) -> None:
    """EnvironmentNotReadyError naming each way in which this machine is not like the run's.

    Loads that two machines sustain cannot be compared, so their trials must not meet in one run.
    """
    host = programs.host.to_json()
    machine, versions = machine_of(host, host["gpus"]), programs_of(programs.versions())
    here = Identity(machine, versions, fingerprint=programs.fingerprint())
    _refuse_if_different(manifest, here)


def _refuse_if_different(manifest: Manifest, here: Identity) -> None:
    changed = [
        f"  {name}: {theirs} there, {mine} here"
        for name, mine, theirs in here.differences(manifest.identity)
    ]
    if changed:
        raise EnvironmentNotReadyError(
            f"this machine cannot measure for {manifest.run_id}, since it differs:\n"
            + "\n".join(changed),
            "join from a machine like the run's, with the same versions",
        )


@contextmanager
def _logs(given: Path | None) -> Iterator[Path]:
    if given is None:
        with private_directory() as directory:
            yield directory
    else:
        given.mkdir(parents=True, exist_ok=True)
        yield given


class _Checkpoint:
    """Raises when the user stops the worker, or the run's search is over."""

    def __init__(self, record: StudyRecord, stopped: Callable[[], None]) -> None:
        self._record = record
        self._stopped = stopped
        self._looked = time.monotonic()
        self._over = False

    def __call__(self) -> None:
        self._stopped()
        now = time.monotonic()
        if not self._over and now - self._looked > POLL_S:
            self._looked = now
            self._over = not self._record.searching
            if self._over:
                raise _SearchOverError("the run's search is over")

    def wait(self) -> None:
        """A while; only the user's word ends it, the searcher looks at the study itself."""
        self._stopped()
        time.sleep(POLL_S)
