"""Replays search strategies over recorded tables: how good is what they hold after n configs?

    python benchmarks/searches/replay.py --table emulated-accelerator --seeds 20 --trials 24
    python benchmarks/searches/replay.py --table pair --seeds 20 --trials 20
    python benchmarks/searches/replay.py --strategy gp --again
    python benchmarks/searches/replay.py --strategy gp --ordinary-best --trials 12
    python benchmarks/searches/replay.py --table tiny-bert --shrunk
    python benchmarks/searches/replay.py --report

Everything is the product's own (search loop, racing, capacity search, strategies) except the
server: a table of real measurements answers, with the noise of its repeats drawn by the seed. A
search's share after n measured configs is the true goodput of its best config so far, without
noise, over that of the table's best feasible config. Results go to
``benchmarks/searches/results/``; runs that are there already are repeated only with ``--again``.
With ``--ordinary-best`` the table's best config answers as its hundredth best does, so that no
strategy gains by a lucky guess. With ``--shrunk`` the differences between configs that are noise
are taken out (`recorded_truth`).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import recorded_curves as results
import recorded_table as tables
from other_samplers import NEED_TORCH, strategy_of
from recorded_bench import RecordedBench, RecordedWorld
from recorded_calls import first_calls
from recorded_curves import Replay, Step
from recorded_truth import shrunk

from tuner.errors import TunerError
from tuner.measurement.batch_profile import BatchCall
from tuner.measurement.window import window_of
from tuner.meter.session import Session
from tuner.prepare.job import Job, Request, prepare
from tuner.prepare.timebook import TimeBook
from tuner.progress.events import Silent
from tuner.proof.entrants import ProofRules, entrant_of, finalists_of
from tuner.proof.measured import MeasuredOnce
from tuner.proof.rounds import run_rounds
from tuner.score.trial import Trial
from tuner.search.incumbent import incumbent
from tuner.search.searcher import Searcher
from tuner.search.searching import search
from tuner.search.strategy import Enough, Proposal
from tuner.search.strategy import Strategy as SearchStrategy
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import Spec

#: What is compared, by the name in the results: fields of ``search`` in a spec.
COMPARED: dict[str, dict[str, str]] = {
    "gp": {"strategy": "gp"},
    "tpe": {"strategy": "tpe"},
    "tpe with designs": {"strategy": "tpe"},
    "GPSampler with designs": {"strategy": "tpe"},
    "random": {"strategy": "random"},
    "grid": {"strategy": "grid"},
    "model-analyzer quick": {"strategy": "model-analyzer", "mode": "quick"},
    "model-analyzer optuna": {"strategy": "model-analyzer", "mode": "optuna"},
    "model-analyzer brute": {"strategy": "model-analyzer", "mode": "brute"},
}
PROCESSES = 2


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", default="emulated-accelerator")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=24, help="configs a search may measure")
    parser.add_argument(
        "--strategy", action="append", choices=COMPARED, help="default: all that are comparable"
    )
    parser.add_argument("--again", action="store_true", help="replace what is there")
    parser.add_argument("--report", action="store_true", help="only show what is stored")
    parser.add_argument("--ordinary-best", action="store_true", help="the best one is no longer")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no run after this long")
    parser.add_argument("--shrunk", action="store_true", help="without what is noise in the table")
    parser.add_argument("--slower", type=float, default=1.0, help="so many times, of one model")
    args = parser.parse_args()
    ground = Ground(args.table, args.ordinary_best, args.shrunk, args.slower)
    kept = results.read(ground.name)
    if not args.report:
        chosen = args.strategy or compared_on(ground)
        if args.again:
            kept = [r for r in kept if r.strategy not in chosen]
        done = {(r.strategy, r.seed) for r in kept if r.asked == args.trials}
        kept = [r for r in kept if r.asked == args.trials or r.strategy not in chosen]
        todo = [(s, n) for n in range(args.seeds) for s in chosen if (s, n) not in done]
        stop_at = time.monotonic() + args.seconds
        for replay in replayed(ground, todo, args.trials, stop_at):
            kept.append(replay)
            results.write(ground.name, kept)
            print(f"{replay.strategy}, seed {replay.seed}: {replay.said()}", flush=True)
    job, world = world_of(ground)
    machine = tables.read_table(ground.table).machine
    print(results.report(ground.name, kept, machine, world, job.space))


@dataclass(frozen=True)
class Ground:
    """What is searched.

    Attributes:
        ordinary_best: The table's best config answers as its hundredth best does.
        shrunk: Differences between configs that are noise are taken out (`recorded_truth`).
        slower: Requests take so many times as long as was recorded, and may by the SLOs.
    """

    table: str
    ordinary_best: bool = False
    shrunk: bool = False
    slower: float = 1.0

    @property
    def name(self) -> str:
        slower = f"slower-{self.slower:g}"
        changes = {
            "ordinary-best": self.ordinary_best,
            "shrunk": self.shrunk,
            slower: self.slower != 1.0,
        }
        return "-".join([self.table, *(name for name, made in changes.items() if made)])


def compared_on(ground: Ground) -> list[str]:
    """All; for several models without Model Analyzer's generators, which vary only one here."""
    job, _ = world_of(ground)
    one = len(job.served.models) == 1
    names = [name for name, how in COMPARED.items() if one or how["strategy"] != "model-analyzer"]
    return [name for name in names if name not in NEED_TORCH]


def replayed(
    ground: Ground, todo: Sequence[tuple[str, int]], trials: int, stop_at: float
) -> Iterator[Replay]:
    """Each run as it ends; none begins once the time is over. Skips what cannot run here."""
    with ProcessPoolExecutor(PROCESSES) as pool:
        waiting = {
            pool.submit(replay, ground, name, seed, trials, stop_at): f"{name}, seed {seed}"
            for name, seed in todo
        }
        for future in as_completed(waiting):
            try:
                result = future.result()
            except TunerError as error:
                print(f"{waiting[future]}: left out: {error}")
                continue
            if result is not None:
                yield result


def replay(ground: Ground, name: str, seed: int, trials: int, stop_at: float) -> Replay | None:
    """One search from its beginning to its end; None when the time is over."""
    if time.monotonic() > stop_at:
        return None
    job, world = world_of(ground)
    spec = spec_for(job.spec, name, seed, trials)
    space = job.space
    strategy = _Timed(strategy_of(name, space, spec))
    events, notes = Silent(), []
    events.note = notes.append  # type: ignore[method-assign]
    bench: Any = RecordedBench(
        world,
        spec.slos,
        space.canonical,
        seed,
        partial(window_of, spec, brief=True),
        calls_of(ground),
    )
    at_s: list[float] = []
    events.trial_finished = lambda *_: at_s.append(bench.seconds)  # type: ignore[method-assign]
    session = Session(
        replace(job, spec=spec), bench, events, TimeBook(lambda: bench.seconds), lambda: None
    )
    history, reason = search(session, Searcher(space, strategy))
    steps = tuple(_steps(session, space, history, world, strategy, at_s))
    written = _written(session, space, history, world, trials)
    return Replay(name, seed, trials, reason.value, tuple(notes), steps, written)


def _written(
    session: Session, space: Space, history: Sequence[Trial], world: RecordedWorld, trials: int
) -> dict[str, float]:
    """What runs that end after these numbers of configs would write, as a share of the best.

    That is the finalist that its rounds on the recorded bench show to be the best; the current
    config where they show none to be better.
    """
    written = {}
    for count in (n for n in results.COLUMNS if n <= trials):
        goodput = world.goodput(space.canonical(_proved(session, history[:count])).key)
        written[str(count)] = round(goodput / world.best, 5)
    return written


def _proved(session: Session, trials: Sequence[Trial]) -> Candidate:
    spec = session.spec
    rules = ProofRules(spec.objective, spec.slos, session.plan, spec.confirm, session.first_seed)
    at_current = next((t for t in trials if t.candidate == session.current and t.points), None)
    finalists = finalists_of(trials, spec, session.current, session.near_miss)
    entrants = [entrant_of(t, rules) for t in finalists]
    if at_current is None or not entrants:
        return entrants[0].candidate if entrants else session.current
    now, measured = entrant_of(at_current, rules), MeasuredOnce(session.bench)
    race = run_rounds(measured, now, entrants, rules, lambda: False, lambda *_: None)
    return race.better[0].candidate if race.better else session.current


@lru_cache
def world_of(ground: Ground) -> tuple[Job, RecordedWorld]:
    """The spec of the table, and what the table holds of its space."""
    recorded = tables.read_table(ground.table)
    job = prepare(Request(spec=tables.spec_path(ground.table)))
    every = {c.key for c in (job.space.canonical(job.space.current), *job.space.enumerate())}
    inside = tuple(r for r in recorded.recordings if r.candidate.key in every)
    world = RecordedWorld.of(tables.Table(recorded.machine, inside), job.spec.slos)
    if ground.shrunk:
        world = shrunk(world, inside, job.spec.slos)
    world = world.with_ordinary_best() if ground.ordinary_best else world
    if ground.slower == 1.0:
        return job, world
    times = {True: ground.slower, False: 1.0}
    slos = [str(replace(s, bound=s.bound * times[s.metric.is_latency])) for s in job.spec.slos]
    slow = prepare(Request(tables.spec_path(ground.table), overrides=(f"slo={json.dumps(slos)}",)))
    return slow, world.slower(ground.slower)


@lru_cache
def calls_of(ground: Ground) -> Callable[[Candidate], tuple[BatchCall, ...]]:
    """What the first calls of a candidate take."""
    job, world = world_of(ground)
    return first_calls(world, job.space, job.spec)


def spec_for(spec: Spec, name: str, seed: int, trials: int) -> Spec:
    """The spec of one compared strategy: no time limit ends its search."""
    search = type(spec.search).model_validate({**COMPARED[name], "seed": seed})
    budget = spec.budget.model_copy(update={"trials": trials, "time": None})
    return spec.model_copy(update={"search": search, "budget": budget})


def _steps(
    session: Session,
    space: Space,
    history: Sequence[Trial],
    world: RecordedWorld,
    timed: _Timed,
    at_s: Sequence[float],
) -> Iterator[Step]:
    choosing_s = 0.0
    for count, trial in enumerate(history, start=1):
        best = incumbent(history[:count], session.spec.objective.goal, session.current)
        goodput = 0.0 if best is None else world.goodput(space.canonical(best.candidate).key)
        choosing_s += timed.seconds.get(trial.number, 0.0)
        yield Step(
            candidate=space.canonical(trial.candidate).key,
            state=trial.state.value,
            measurements=len(trial.points),
            share=round(goodput / world.best, 5),
            choosing_s=round(timed.seconds.get(trial.number, 0.0), 4),
            at_s=round(at_s[trial.number] + choosing_s, 2),
        )


@dataclass
class _Timed:
    """A strategy whose proposals are timed (seconds of CPU), by number of the trial."""

    strategy: SearchStrategy
    seconds: dict[int, float] = field(default_factory=dict)

    @property
    def at_once(self) -> int:
        return self.strategy.at_once

    @property
    def designs(self) -> Sequence[Candidate]:
        return self.strategy.designs

    def lead(self, leads: Sequence[Candidate], history: Sequence[Trial]) -> Proposal:
        return self.strategy.lead(leads, history)

    def propose(
        self,
        number: int,
        history: Sequence[Trial],
        taken: Set[str],
        pending: Sequence[Candidate] = (),
    ) -> Proposal | Enough | None:
        begin = time.process_time()
        try:
            return self.strategy.propose(number, history, taken, pending)
        finally:
            self.seconds[number] = time.process_time() - begin


if __name__ == "__main__":
    main()
