"""Compares search strategies on one real server: same load and windows, equal wall time.

    python benchmarks/searches/live.py                # everything that is missing
    python benchmarks/searches/live.py --strategy gp  # one search, as a slot of its own
    python benchmarks/searches/live.py --remeasure    # the rounds that are missing
    python benchmarks/searches/live.py --report       # only table and figure

Each search is the product's own, over the space of ``tables/emulated-accelerator.yaml``, with so
many minutes from the start of its first server; a trial that is unfinished by then does not count.
Nothing is written back. Then the current config and every distinct winner are measured again, in
turn, on fresh servers, with other arrivals in each round. Results go to
``benchmarks/searches/results/``.

The twin's simulation is compiled once per installation, which takes a while: run any search by it
first, with another ``--results``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import live_state as state
from live_report import report
from live_state import Comparison, LiveSearch, Round, Settings, Shown, Step
from recorded_curves import RESULTS
from recorded_table import spec_path
from replay import COMPARED, spec_for

from tuner.bench.protocol import Bench
from tuner.bench.timebook import Phase, TimeBook
from tuner.confirm.rounds import Entrant, search_round
from tuner.errors import (
    EnvironmentNotReadyError,
    InterruptedRunError,
    SpecError,
    TooManyFailedTrialsError,
    TrialError,
    TunerError,
)
from tuner.load import seeds
from tuner.score.capacity import LevelRange
from tuner.score.trial import Trial, TrialState
from tuner.search.budget import StopReason
from tuner.search.searcher import Searcher
from tuner.search.strategies.registry import STRATEGIES
from tuner.space.space import Space
from tuner.space.words import changes_text
from tuner.spec.units import Seconds
from tuner.steps.events import Events, Silent
from tuner.steps.job import Job, Request, prepare
from tuner.steps.searching import search
from tuner.steps.serving import serving
from tuner.steps.session import Session, open_session
from tuner.steps.stop import Stop
from tuner.steps.tools import Programs, find_programs

#: The strategies compared; over so large a space a grid is a random search.
STRATEGY_NAMES = tuple(name for name in COMPARED if name != "grid")
WARMUP_S = 0.3
#: More than any search can measure in its time.
TRIALS = 1000
ROUNDS = 5


class TimeOverError(InterruptedRunError):
    """The search has had its time."""


@dataclass(frozen=True)
class Clock:
    """The wall time of one search; ``stopped`` raises when the user stopped the comparison."""

    limit_s: float
    stopped: Callable[[], None]
    begin_s: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begin_s

    def checkpoint(self) -> None:
        self.stopped()
        if self.seconds >= self.limit_s:
            raise TimeOverError("the search has had its time")


@dataclass
class Recorder(Silent):
    """Keeps each trial that was done in time, and reports it."""

    space: Space
    clock: Clock
    steps: list[Step] = field(default_factory=list)

    def trial_finished(self, trial: Trial, best: Trial | None) -> None:
        self.clock.checkpoint()
        scored = trial.score if trial.state is TrialState.MEASURED else None
        step = Step(
            seconds=round(self.clock.seconds, 2),
            number=trial.number,
            candidate=self.space.canonical(trial.candidate),
            state=trial.state.value,
            measurements=len(trial.points),
            disturbed=sum(bool(p.measurement.disturbances) for p in trial.points),
            goodput=scored.value if scored is not None and scored.feasible else None,
            level=None if scored is None else trial.capacity_level,
            held=None if best is None else best.number,
        )
        self.steps.append(step)
        words = changes_text(trial.candidate, self.space.current)
        result = trial.state.value if step.goodput is None else f"{step.goodput:.0f}/s"
        print(f"{step.seconds:6.1f} s  {step.number:3} {words}: {result}", flush=True)


def main() -> int:
    args = _arguments()
    path = args.results / "live.json"
    everything = not (args.strategy or args.remeasure or args.report)
    try:
        comparison = _begun(state.read(path), args)
        if not args.report:
            names = args.strategy or (STRATEGY_NAMES if everything else ())
            todo = [n for n in names if args.again or n not in comparison.searches]
            rounds = args.rounds if everything or args.remeasure else 0
            for found in measured(comparison, todo, rounds):
                comparison = found
                state.write(path, comparison)
    except TunerError as error:
        print(f"{error.message}\n{error.hint}".strip(), file=sys.stderr)
        return error.exit_code
    print(report(comparison, args.results))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strategy", action="append", choices=STRATEGY_NAMES, default=[])
    parser.add_argument("--remeasure", action="store_true", help="measure the winners again")
    parser.add_argument("--report", action="store_true", help="only write table and figure")
    parser.add_argument("--again", action="store_true", help="replace searches that are there")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="in which winners are measured")
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory of the results")
    fixed = parser.add_argument_group("the same for all searches of one comparison")
    fixed.add_argument("--minutes", type=float, help="wall time of each search (3)")
    fixed.add_argument("--window", type=float, dest="window_s", help="seconds of a measurement (1)")
    fixed.add_argument("--seed", type=int, help="of proposals and arrivals (0)")
    return parser.parse_args()


def _begun(stored: Comparison | None, args: argparse.Namespace) -> Comparison:
    """The existing comparison, or a new one.

    Raises:
        SpecError: It was begun with other settings.
    """
    names = ("minutes", "window_s", "seed")
    given = {name: value for name in names if (value := getattr(args, name)) is not None}
    begun = stored or Comparison(replace(Settings(), **given))
    if replace(begun.settings, **given) != begun.settings:
        raise SpecError(
            f"{args.results / 'live.json'} was begun with {begun.settings}",
            "leave out these options to continue it, or give another --results",
        )
    return begun


def measured(comparison: Comparison, todo: Sequence[str], rounds: int) -> Iterator[Comparison]:
    """The comparison after each search and each round."""
    stop = Stop(print)
    job = job_of(comparison.settings)
    with stop.listening(), find_programs(job, os.environ) as programs:
        comparison = on_machine(comparison, _machine(programs, job))
        for name in todo:
            print(f"{name}, {comparison.settings.minutes:g} minutes", flush=True)
            comparison = comparison.with_search(_search(job, programs, name, comparison, stop))
            yield comparison
        if len(comparison.rounds) < rounds and comparison.entrants():
            with _session(job, programs, Silent(), stop.checkpoint) as session:
                while len(comparison.rounds) < rounds:
                    found = measured_round(session.bench, comparison, job.plan.levels)
                    comparison = comparison.with_round(found)
                    yield comparison


def on_machine(comparison: Comparison, machine: Mapping[str, object]) -> Comparison:
    """The comparison, to be continued on this machine.

    Raises:
        EnvironmentNotReadyError: It was begun on another one, or with other programs.
    """
    changed = [name for name, was in comparison.machine.items() if machine.get(name) != was]
    if changed:
        before = ", ".join(f"{name} was {comparison.machine[name]}" for name in changed)
        raise EnvironmentNotReadyError(
            f"the comparison was begun elsewhere or under other conditions: {before}",
            "continue there, or start again with another --results",
        )
    return replace(comparison, machine=machine)


def job_of(settings: Settings) -> Job:
    """The table's spec, with windows for live searches."""
    job = prepare(Request(spec=spec_path(settings.model)))
    lengths = {"window": Seconds(settings.window_s), "warmup": Seconds(WARMUP_S)}
    workload = job.spec.workload.model_copy(update=lengths)
    return replace(job, spec=job.spec.model_copy(update={"workload": workload}))


def _machine(programs: Programs, job: Job) -> dict[str, object]:
    host = programs.host
    return {
        "cpu": host.cpu,
        "cores": host.cores,
        "versions": programs.versions(),
        "configs": job.space.size().count,
        "slo": [str(slo) for slo in job.spec.slos],
        "current": job.space.canonical(job.space.current).to_json(),
    }


@contextmanager
def _session(
    job: Job, programs: Programs, events: Events, checkpoint: Callable[[], None]
) -> Iterator[Session]:
    book = TimeBook()
    with (
        tempfile.TemporaryDirectory(prefix="tune-live-") as logs,
        serving(job, programs, Path(logs), book) as served,
        open_session(served, events, book, checkpoint) as session,
    ):
        yield session


def _search(
    job: Job, programs: Programs, name: str, comparison: Comparison, stop: Stop
) -> LiveSearch:
    """One strategy on a server of its own, from its first start to the end of its time."""
    settings = comparison.settings
    spec = spec_for(job.spec, name, settings.seed, TRIALS)
    searcher = Searcher(job.space, STRATEGIES[spec.search.strategy](job.space, spec))
    clock = Clock(settings.minutes * 60.0, stop.checkpoint)
    recorder = Recorder(job.space, clock)
    with _session(job, programs, recorder, clock.checkpoint) as rig:
        session = replace(rig, job=replace(job, spec=spec))
        return timed(name, session, searcher, recorder)


def timed(name: str, session: Session, searcher: Searcher, recorder: Recorder) -> LiveSearch:
    """Runs a search until its time is over or it ends by itself."""
    try:
        _, ended = search(session, searcher)
    except TimeOverError:
        ended = StopReason.TIME
    except TooManyFailedTrialsError as error:
        print(error.message)
        ended = StopReason.TOO_MANY_FAILED
    seconds = recorder.clock.seconds, session.book.seconds(Phase.SEARCHING)
    spent_s, choosing_s = (round(s, 2) for s in seconds)
    return LiveSearch(name, spent_s, choosing_s, ended, tuple(recorder.steps))


def measured_round(bench: Bench, comparison: Comparison, levels: LevelRange) -> Round:
    """Each winner's capacity on a fresh server, all with the same arrivals.

    Every round begins with another config.

    Raises:
        TrialError: One could not be measured in two attempts.
    """
    number = len(comparison.rounds)
    seed = seeds.of_rounds(comparison.settings.seed) + number
    entrants = list(comparison.entrants().items())
    first = number % len(entrants)
    found = {}
    for key, entrant in entrants[first:] + entrants[:first]:
        try:
            found[key] = _capacity(bench, entrant, levels, seed)
        except TrialError as error:
            print(f"once more: {error.message}")
            found[key] = _capacity(bench, entrant, levels, seed)
        print(f"round {number}: {entrant.candidate.to_json()}", flush=True)
    return found


def _capacity(bench: Bench, entrant: Entrant, levels: LevelRange, seed: int) -> tuple[Shown, ...]:
    assert entrant.level is not None  # those that met no SLO take no part
    bench.deploy(entrant.candidate, fresh=True)
    found = search_round(lambda level: bench.measure(level, seed), entrant.level, levels)
    return tuple(map(Shown.of, found.probes))


if __name__ == "__main__":
    sys.exit(main())
