"""Records every config of a spec's space on a real server; how near the best does a run get?

    python benchmarks/searches/record.py SPEC measure --seconds 600    # repeat until "0 left"
    python benchmarks/searches/record.py SPEC again --run results/RUN  # the best, in turn
    python benchmarks/searches/record.py SPEC report --run results/RUN
    python benchmarks/searches/record.py SPEC pack

SPEC is one of ``tables/*.yaml`` or ``served_models/*.yaml``. Every config is served under the
spec's own load. The first load is what the other configs suggest it sustains. More follow until
one that meets every SLO and one that does not are within 20 %; the capacity is interpolated
between them. The best of many single measurements looks better than it is. So ``again`` finds the
capacity of the best ones, the current config and the winners of runs as a trial does, in turn, on
fresh servers with other arrivals, and the report uses these. It also shows what is reached by
tuning one model after the other, in each order, from the table itself.

The table is ``tables/NAME.jsonl``, packed ``.jsonl.gz``; ``replay.py --table NAME`` answers from
it. The script continues where it stopped. Nothing is written into the model repository.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from statistics import mean, median

import recorded_table as tables
from recorded_grid import guess, in_order, next_load, one_by_one
from recorded_table import Recording

from tuner.errors import TrialError
from tuner.meter.evaluate import evaluate
from tuner.meter.protocol import Bench
from tuner.meter.session import set_up_bench
from tuner.prepare.job import Job, Request, prepare
from tuner.prepare.serving import serving
from tuner.prepare.timebook import TimeBook
from tuner.prepare.tools import Programs, find_programs
from tuner.progress.events import Silent
from tuner.score.capacity import Bracket
from tuner.score.point import Point, judge_point
from tuner.search.first_load import first_level
from tuner.space.candidate import Candidate
from tuner.space.words import changes_text

#: Most loads of a config, in all and once its capacity is bracketed, however widely; and the first
#: load as a share of the guessed capacity: an overload costs a fresh server.
MOST_LOADS, ENOUGH_LOADS, BEGIN = 6, 4, 0.95
#: How many of the best are measured again, and in how many rounds.
BEST, ROUNDS = 6, 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("spec", type=Path)
    parser.add_argument("what", choices=("measure", "again", "report", "pack"))
    parser.add_argument("--seconds", type=float, default=600.0, help="length of this slot")
    parser.add_argument("--run", type=Path, action="append", default=[], help="a run's directory")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of `again`")
    parser.add_argument("--file", type=Path, help="of the table; default tables/SPEC.jsonl")
    args = parser.parse_args()
    path = args.file or tables.growing_path(args.spec.stem)
    if args.what == "pack":
        print(tables.pack(path))
        return
    job = prepare(Request(spec=args.spec))
    winners = {str(run): winner_of(job, run) for run in args.run}
    if args.what == "report":
        report(Grid(job, tables.parse_table(tables.lines_of(path)).recordings), winners)
    else:
        rounds = 0 if args.what == "measure" else args.rounds
        slot(job, path, winners, rounds, time.monotonic() + args.seconds)


class Grid:
    """The recordings of a spec's configs so far; a capacity of 0: no load meets every SLO."""

    def __init__(self, job: Job, recordings: Sequence[Recording]) -> None:
        self.job = job
        self.firsts: dict[Candidate, float] = {}
        self.rounds: dict[Candidate, list[float]] = {}
        self.seconds: list[float] = []
        for recording in recordings:
            self.add(recording)

    def add(self, recording: Recording) -> float:
        """Takes a recording in; returns its capacity in requests per second."""
        probes = [judge_point(self.job.spec.slos, p) for p in recording.points]
        capacity = Bracket.of(probes).capacity() or 0.0
        self.seconds.append(recording.seconds)
        if recording.repeat:
            self.rounds.setdefault(recording.candidate, []).append(capacity)
        else:
            self.firsts[recording.candidate] = capacity
        return capacity

    def worth(self) -> dict[Candidate, float]:
        """For each config the mean of its rounds, or its first measurement if there are none."""
        return self.firsts | {c: mean(values) for c, values in self.rounds.items()}

    def left(
        self, winners: Mapping[str, Candidate], rounds: int
    ) -> Iterator[tuple[Candidate, int]]:
        """Configs to measure, with the number of the round; 0: those never measured.

        Each round begins with another config.
        """
        space = self.job.space
        if not rounds:
            yield from ((c, 0) for c in in_order(space) if c not in self.firsts)
            return
        best = sorted(self.firsts, key=lambda c: self.firsts[c], reverse=True)[:BEST]
        chosen = list(dict.fromkeys([*best, space.canonical(space.current), *winners.values()]))
        done = {c: len(values) for c, values in self.rounds.items()}
        for number in range(rounds):
            at = number % len(chosen)
            for candidate in chosen[at:] + chosen[:at]:
                if done.get(candidate, 0) <= number:
                    yield candidate, number + 1


def slot(
    job: Job, path: Path, winners: Mapping[str, Candidate], rounds: int, stop_at: float
) -> None:
    """Measures what is left, as long as there is time."""
    with find_programs(job, dict(os.environ)) as programs:
        grid = Grid(job, tables.begun(path, machine_of(programs)))
        left = list(grid.left(winners, rounds))
        minutes = len(left) * median(grid.seconds or [12.0]) / 60
        print(f"{len(left)} left, about {minutes:.0f} minutes", flush=True)
        book = TimeBook()
        with (
            tempfile.TemporaryDirectory(prefix="tune-record-") as logs,
            serving(job, programs, Path(logs), book) as served,
            set_up_bench(served, Silent(), book, lambda: None) as bench,
        ):
            while left and time.monotonic() < stop_at:
                candidate, number = left.pop(0)
                recording = recorded(bench, grid, candidate, number)
                if recording is None:
                    continue
                tables.append(path, tables.line_of(recording))
                capacity, loads = grid.add(recording), len(recording.points)
                summary = f"{recording.seconds:5.1f} s  {loads} loads  {capacity:6.1f}/s"
                print(f"{summary}  {_words(job, candidate)}; {len(left)} left", flush=True)


def machine_of(programs: Programs) -> dict[str, object]:
    """The first line of a table."""
    host = programs.host
    return {
        "cpu": host.cpu,
        "cores": host.cores,
        "memory_bytes": host.memory_bytes,
        "gpus": [gpu.name for gpu in host.gpus],
        "versions": programs.versions(),
    }


def recorded(bench: Bench, grid: Grid, candidate: Candidate, number: int) -> Recording | None:
    """One config's capacity, with a second attempt after a failure; None if that fails too."""
    job = grid.job
    for attempt in range(2):
        begin = time.monotonic()
        seeds = count(1 + 100 * number)
        try:
            deployment = bench.deploy(candidate, fresh=number > 0)
            start = guess(candidate, grid.firsts)
            if start is None or attempt:
                start = first_level(bench, job.plan, next(seeds)).level
            points = (evaluate_again if number else bracket_capacity)(
                bench, job, BEGIN * start, seeds
            )
        except TrialError as error:
            print(f"failed: {error.message}", flush=True)
            bench.lost(error.reason)
            continue
        took = round(time.monotonic() - begin, 2)
        measured = tuple(p.measurement for p in sorted(points, key=lambda p: p.level))
        return Recording(candidate, number, measured, deployment.kind.value, took)
    return None


def bracket_capacity(bench: Bench, job: Job, start: float, seeds: Iterator[int]) -> list[Point]:
    """Loads on both sides of the capacity, close enough to interpolate."""
    levels, points = job.plan.levels, [bench.measure(job.plan.levels.nearest(start), next(seeds))]
    while len(points) < MOST_LOADS and (load := next_load(points)) is not None:
        level = levels.nearest(load)
        if len(points) >= ENOUGH_LOADS and Bracket.of(points).gap < math.inf:
            break
        if any(p.level == level for p in points):
            break
        points.append(bench.measure(level, next(seeds)))
    return points


def evaluate_again(bench: Bench, job: Job, start: float, seeds: Iterator[int]) -> list[Point]:
    """As a trial of a run finds it."""
    objective, level = job.spec.objective, job.plan.levels.nearest(start)
    return [*evaluate(lambda n: bench.measure(n, next(seeds)), objective, job.plan, level).points]


def winner_of(job: Job, run: Path) -> Candidate:
    """What a run would write; the current config where it found nothing better."""
    result = json.loads((run / "result.json").read_text())
    winner = result.get("winner") or {}
    best = Candidate.from_json(winner) if winner else job.space.current
    return job.space.canonical(best)


def report(grid: Grid, winners: Mapping[str, Candidate]) -> None:
    job, worth, rounds = grid.job, grid.worth(), grid.rounds
    size = job.space.size().count
    if len(grid.firsts) < size:
        print(f"only {len(grid.firsts)} of {size} configs are measured")
    ranked = sorted(worth, key=lambda c: worth[c], reverse=True)
    settled = [c for c in ranked if c in rounds] or ranked  # those measured again, where there are
    best, current = settled[0], job.space.canonical(job.space.current)
    print(f"{len(ranked)} configs, {sum(grid.seconds) / 60:.0f} minutes; the best:")
    for candidate in settled[:5]:
        again = f", mean of {len(rounds[candidate])}" if candidate in rounds else ""
        print(f"  {worth[candidate]:6.1f}/s{again}  {_words(job, candidate)}")

    def share(what: str, candidate: Candidate) -> None:
        value = worth.get(candidate)
        said = "not in the table" if value is None else f"{value / worth[best]:6.1%}"
        print(f"  {said}  {what}: {_words(job, candidate)}")

    print("share of the best:")
    share("the current config", current)
    for name, candidate in winners.items():
        share(name, candidate)
    if current in worth and len(best.models) > 1:
        for order, winner, tried in one_by_one(worth, current, float(job.spec.confirm.min_gain)):
            share(f"{' > '.join(order)}, one after the other, {tried} configs", winner)


def _words(job: Job, candidate: Candidate) -> str:
    return changes_text(candidate, job.space.current) or "as it is"


if __name__ == "__main__":
    main()
