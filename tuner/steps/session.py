"""What the steps of a run, a check or a worker share, from the moment there is a bench."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tuner.bench.evaluate import Sendable
from tuner.bench.protocol import Bench
from tuner.bench.timebook import TimeBook
from tuner.confirm.rounds import Row
from tuner.load import seeds
from tuner.measurement.measurement import Rejected
from tuner.run.manifest import Manifest
from tuner.run.store import RunStore
from tuner.score.next_load import LoadPlan
from tuner.search.incumbent import NEAR_MISS
from tuner.server.memory import Memories
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec
from tuner.steps.events import Events
from tuner.steps.job import Job
from tuner.steps.rig import set_up_bench
from tuner.steps.serving import Serving


@dataclass
class Deadline:
    """When what follows the search should be over; ``told`` has what is left out after that."""

    at_s: float = math.inf
    told: list[str] = field(default_factory=list)

    def set(self, seconds: float, note: Callable[[str], None]) -> None:
        self.at_s = time.monotonic() + seconds
        note(f"confirming and what follows it is planned to take up to {seconds / 60:.1f} minutes")

    def leaves_out(self, what: str) -> bool:
        """Whether it is too late for ``what``, which is told then."""
        late, sentence = time.monotonic() >= self.at_s, f"Left out for lack of time: {what}."
        if late and sentence not in self.told:
            self.told.append(sentence)
        return late


@dataclass(frozen=True)
class Session:
    """A job, a bench to measure it on, and its watchers.

    Attributes:
        job: Over the config as the server completes it.
        book: Records the seconds spent.
        checkpoint: Raises when the run is to stop.
        record: Stores a measurement of a round at once.
        load_s: What loading the model took before the search; the time of the budget counts it.
        memory: What the models that are loaded take.
        near_miss: SLO utilisation up to which an SLO may be missed by noise alone.
        arrivals: Seed of the first round's; None: from the seed of the search.
        accept_unsoaked: Write a winner of which no soak could tell whether its load lasts.
        deadline: Of what follows the search.
    """

    job: Job
    bench: Bench
    events: Events
    book: TimeBook
    checkpoint: Callable[[], None]
    record: Callable[[Row], None] = lambda _: None
    load_s: float = 0.0
    memory: Callable[[], Memories] = dict
    near_miss: float = NEAR_MISS
    arrivals: int | None = None
    accept_unsoaked: bool = False
    deadline: Deadline = field(default_factory=Deadline)

    @property
    def spec(self) -> Spec:
        return self.job.spec

    @property
    def plan(self) -> LoadPlan:
        """Its loads are those that the load generator can send."""
        plan = self.job.plan
        return replace(plan, levels=plan.levels.below(self.bench.sendable.most))

    @property
    def current(self) -> Candidate:
        """The config in the repository."""
        return self.job.space.current

    @property
    def first_seed(self) -> int:
        """Seed of the first round's arrivals."""
        own = self.arrivals
        return seeds.of_rounds(self.spec.search.seed) if own is None else own


@contextmanager
def open_session(
    served: Serving,
    events: Events,
    book: TimeBook,
    checkpoint: Callable[[], None],
    *,
    manifest: Manifest | None = None,
    store: RunStore | None = None,
) -> Iterator[Session]:
    """Opens a session on a bench of its own, all of which is gone afterwards.

    ``checkpoint`` raises when it is to stop. ``manifest`` has the seed of the rounds; ``store``
    keeps the rounds, and measurements that do not count.
    """

    def reject(rejected: Rejected) -> None:
        if store is not None:
            store.append_rejected(rejected)

    def record(row: Row) -> None:
        if store is not None:
            store.append_confirmation(row.kept)

    with set_up_bench(served, events, book, checkpoint, reject) as bench:
        if store is not None:
            kept = [p.measurement for t in store.trials() for p in t.points]
            kept += [row.point.measurement for row in store.confirmation()]
            rejected = [r.measurement for r in store.rejected() if r.measurement is not None]
            bench.sendable = Sendable.seen([*kept, *rejected])
        yield Session(
            job=served.job,
            bench=bench,
            events=events,
            book=book,
            checkpoint=checkpoint,
            record=record,
            load_s=served.load_s,
            memory=served.deployer.memory,
            arrivals=None if manifest is None else manifest.arrivals,
            accept_unsoaked=manifest is not None and manifest.choices.accept_unsoaked,
        )
