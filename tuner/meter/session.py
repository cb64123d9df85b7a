"""The session that the steps of a run or a check share: the job and a bench that is set up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tuner.lint.model_py import parameters_read
from tuner.load import seeds
from tuner.load.setup import PATIENCE_S, Site
from tuner.load.streams_load import stream_requests, streams_load
from tuner.machine.cpus import ANY, Cores
from tuner.machine.process import Priority, private_directory
from tuner.measurement.measurement import Rejected
from tuner.measurement.window import soak_of, window_of
from tuner.meter.bench import TritonBench
from tuner.meter.benches import Benches
from tuner.meter.cache import CacheRules, cache_of
from tuner.meter.evaluate import ClientCeiling
from tuner.meter.protocol import Bench
from tuner.meter.rules import BenchRules
from tuner.prepare.job import Job
from tuner.prepare.serving import Serving
from tuner.prepare.timebook import TimeBook
from tuner.prepare.tools import choose_generator
from tuner.progress.events import Events
from tuner.reason import Reason, ReasonKind
from tuner.record.confirmation import Repeat
from tuner.record.manifest import Manifest
from tuner.record.store import RunStore
from tuner.score.judge import NEAR_MISS, tail_slo
from tuner.score.next_load import LoadPlan
from tuner.server.log import last_words
from tuner.server.memory import Memories
from tuner.space.candidate import Candidate
from tuner.space.parameters import Knob
from tuner.spec.model import Spec
from tuner.spec.paths import CACHE_ENABLE

#: Seconds of patience with a remote server: killing perf_analyzer during a queue can crash Triton.
REMOTE_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Session:
    """A job, the bench that measures it, and the receivers of events.

    Attributes:
        job: The job, with the configs as the server completes them.
        events: Receives the events of the run.
        book: Records the seconds spent, by phase.
        checkpoint: Raises when the run should stop.
        record: Stores a measurement of the proof at once.
        load_s: Seconds that loading the model took before the search, part of the budget's time.
        memory: Reads the memory of the loaded models.
        near_miss: SLO utilisation up to which noise alone may explain a miss.
        arrivals: Seed of the first round's arrivals; None: derived from the seed of the search.
        accept_unsoaked: Write a winner even where no soak shows whether its load lasts.
        more_s: Seconds for further rounds of an open proof; None: as the spec says.
        cores: The CPUs of server and load generator.
        benches: The benches of a run that has several, of which ``bench`` is the first.
    """

    job: Job
    bench: Bench
    events: Events
    book: TimeBook
    checkpoint: Callable[[], None]
    record: Callable[[Repeat], None] = lambda _: None
    load_s: float = 0.0
    memory: Callable[[], Memories] = dict
    near_miss: float = NEAR_MISS
    arrivals: int | None = None
    accept_unsoaked: bool = False
    more_s: float | None = None
    cores: Cores = ANY
    benches: Benches | None = None

    @property
    def spec(self) -> Spec:
        return self.job.spec

    @property
    def plan(self) -> LoadPlan:
        """The levels to measure, limited to those the load generator can send."""
        plan = self.job.plan
        return replace(plan, levels=plan.levels.below(self.bench.sendable.most))

    @property
    def current(self) -> Candidate:
        """The config in the repository."""
        return self.job.space.current

    @property
    def first_seed(self) -> int:
        """Seed of the first round's arrivals."""
        arrivals = self.arrivals
        return seeds.of_rounds(self.spec.search.seed) if arrivals is None else arrivals


@contextmanager
def open_session(
    served: Serving,
    events: Events,
    book: TimeBook,
    checkpoint: Callable[[], None],
    *,
    manifest: Manifest | None = None,
    store: RunStore | None = None,
    more_s: float | None = None,
    cores: Cores = ANY,
    reject: Callable[[Rejected], None] = lambda _: None,
) -> Iterator[Session]:
    """Opens a session with a new bench, whose processes and files end with the context.

    Args:
        checkpoint: Raises when the session should stop.
        manifest: Has the seed of the rounds and the user's choices.
        store: Stores the rounds, and the measurements that do not count.
        more_s: Seconds for further rounds of an open proof; None: as the spec says.
        reject: Receives the measurements that do not count, where there is no ``store``.
    """
    rejected = reject if store is None else store.append_rejected
    with set_up_bench(served, events, book, checkpoint, rejected, cores) as bench:
        session = Session(
            job=served.job,
            bench=bench,
            events=events,
            book=book,
            checkpoint=checkpoint,
            load_s=served.load_s,
            memory=served.deployer.memory,
            arrivals=None if manifest is None else manifest.arrivals,
            accept_unsoaked=manifest is not None and manifest.choices.accept_unsoaked,
            more_s=more_s,
            cores=cores,
        )
        yield session if store is None else stored_in(store, session)


def stored_in(store: RunStore, session: Session) -> Session:
    """The session that stores rounds in ``store``, which also shows the loads sent before."""
    kept = [p.measurement for t in store.trials() for p in t.points]
    kept += [row.point.measurement for row in store.confirmation()]
    rejected = [r.measurement for r in store.rejected() if r.measurement is not None]
    session.bench.sendable = ClientCeiling.seen([*kept, *rejected])
    return replace(session, record=store.append_confirmation)


@contextmanager
def set_up_bench(
    served: Serving,
    events: Events,
    book: TimeBook,
    checkpoint: Callable[[], None],
    reject: Callable[[Rejected], None] = lambda _: None,
    cores: Cores = ANY,
) -> Iterator[TritonBench]:
    """A bench that is ready to measure; its processes and files end with the context.

    ``reject`` receives each measurement that does not count.
    """
    job, programs, deployer = served.job, served.programs, served.deployer
    spec = job.spec
    priority = cores.load_priority if spec.server.managed else Priority.NORMAL
    generator = replace(programs.perf_analyzer, cpus=cores.load, priority=priority)
    with private_directory() as directory:
        yield TritonBench(
            deployer,
            lambda endpoints: streams_load(
                spec.workload,
                stream_requests(spec, may_be_cached(job)),
                job.served.models,
                Site(
                    deployer.control,
                    endpoints,
                    generator,
                    directory,
                    place=programs.launcher.place,
                    gpus=spec.server.gpus,
                    patience_s=PATIENCE_S if programs.launcher.restartable else REMOTE_PATIENCE_S,
                    server_words=lambda: last_words(deployer.server),
                ),
                choose_generator(job).kind,
            ),
            _rules(served, events, checkpoint, reject),
            book,
            cores,
        )


def _rules(
    served: Serving,
    events: Events,
    checkpoint: Callable[[], None],
    reject: Callable[[Rejected], None],
) -> BenchRules:
    job, launcher = served.job, served.programs.launcher
    spec = job.spec
    return BenchRules(
        slos=spec.slos,
        arrivals=job.plan.arrivals,
        window=lambda load, rate: window_of(spec, load, rate, brief=True),
        soak=lambda load, rate, least_s: soak_of(spec, load, rate, least_s),
        checkpoint=checkpoint,
        measured=events.measured,
        rejected=reject,
        note=events.note,
        step=events.step,
        disturbed=events.disturbed,
        loading=events.loading,
        first_answer_s=float(spec.server.load_timeout),
        cache=CacheRules(
            spec.workload.cache,
            lambda candidate: cache_of(
                job.served, job.space.server_args, candidate, remote=not launcher.restartable
            ),
            events.note,
        ),
    )


def may_be_cached(job: Job) -> dict[str, tuple[str, ...]]:
    """The models whose requests the response cache may answer, with the parameters they read."""
    parameters = {}
    for label in job.space.targets:
        enable = Knob(label, CACHE_ENABLE)
        searched = job.space.caches or any(p.knob == enable for p in job.space.parameters)
        if searched or job.served.models[label].base.completed.response_cache.enable:
            parts = [job.served.models[name] for name in job.served.answering([label])]
            names = [n for p in parts for n in parameters_read(p.files, p.base.completed)]
            parameters[label] = tuple(dict.fromkeys(names))
    return parameters


def why_no_overload(spec: Spec, plan: LoadPlan) -> Reason | None:
    """Why no config can be overloaded; None where the run searches a capacity."""
    if not plan.arrivals.open_loop:
        return Reason(ReasonKind.CLOSED_LOOP_NOT_OVERLOADED)
    if plan.listed is not None:
        return Reason(ReasonKind.LISTED_NOT_OVERLOADED)
    if tail_slo(spec.slos) is None:
        return Reason(ReasonKind.NO_TAIL_SLO)
    return None
