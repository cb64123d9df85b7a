"""Measures a grid of configs of several models served together, and how near its best a run gets.

    python benchmarks/grid_of_served.py SPEC measure --seconds 600    # repeat until "0 left"
    python benchmarks/grid_of_served.py SPEC alone --seconds 600      # each model by itself
    python benchmarks/grid_of_served.py SPEC again --run results/RUN  # the best, in turn
    python benchmarks/grid_of_served.py SPEC report --run results/RUN
    python benchmarks/grid_of_served.py SPEC pack

SPEC is a spec of several models (``benchmarks/served_models/*.yaml``). Every config of its space is
served on a real server under the spec's own load. The first load is what the other configs suggest
it sustains. More follow until one that meets every SLO and one that does not are within 20 %; the
capacity is interpolated between them. The best of a grid of single measurements looks better than
it is. So ``again`` finds the capacity of the best ones, the current config and the winners of runs
as a trial does, in turn, on fresh servers with other arrivals, and the report uses these.

The grid is a table (``tables/NAME.jsonl``, packed ``.jsonl.gz``) that ``replay.py --table NAME``
answers from. Older cells, which hold only loads, count in the report; a replay needs more, so
``measure`` repeats them at the end.

The report also shows what is reached by tuning one model after the other, in each order, with the
whole under load (from the grid itself), and by tuning each model by itself (``alone``). The script
continues where it stopped. Nothing is written into the model repository.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import recorded_table as tables
import yaml
from recorded_rig import machine_of
from recorded_table import Recording
from served_grid import Cell, Grid, guess, in_order, next_load, one_by_one, owners

from tuner.bench.evaluate import evaluate
from tuner.bench.protocol import Bench
from tuner.bench.timebook import TimeBook
from tuner.errors import TrialError
from tuner.score.capacity import Bracket
from tuner.score.point import Point
from tuner.space.candidate import Candidate
from tuner.space.words import changes_text
from tuner.steps.events import Silent
from tuner.steps.job import Job, Request, prepare
from tuner.steps.looking import first_level
from tuner.steps.rig import set_up_bench
from tuner.steps.serving import serving
from tuner.steps.tools import find_programs

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
    parser.add_argument("what", choices=("measure", "alone", "again", "report", "pack"))
    parser.add_argument("--seconds", type=float, default=600.0, help="length of this slot")
    parser.add_argument("--run", type=Path, action="append", default=[], help="a run's directory")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of `again`")
    parser.add_argument("--file", type=Path, help="of the grid; default tables/SPEC.jsonl")
    args = parser.parse_args()
    path = args.file or tables.growing_path(args.spec.stem)
    job = prepare(Request(spec=args.spec))
    stop_at = time.monotonic() + args.seconds
    winners = {str(run): winner_of(job, run) for run in args.run}
    if args.what == "pack":
        print(tables.pack(path))
    elif args.what == "report":
        report(job, Grid.read(path, {}), winners)
    elif args.what == "alone":
        for owner in owners(list(job.space.enumerate())):
            with tempfile.TemporaryDirectory() as directory:
                alone = prepare(Request(spec=spec_alone(args.spec, owner, Path(directory))))
                slot(alone, path, plan_of_firsts, stop_at, owner)
    elif args.what == "measure":
        slot(job, path, plan_of_firsts, stop_at)
    else:
        slot(job, path, lambda j, g, _: plan_of_rounds(j, g, winners, args.rounds), stop_at)


def slot(job: Job, path: Path, plan: Any, stop_at: float, alone: str = "") -> None:
    """Measures what is left, as long as there is time."""
    with find_programs(job, dict(os.environ)) as programs:
        grid = Grid.read(path, machine_of(programs))
        left = list(plan(job, grid, alone))
        whose = f"{alone} alone: " if alone else ""
        print(f"{whose}{left_text(grid, left, alone)}", flush=True)
        with bench_of(job, programs) as bench:
            while left and time.monotonic() < stop_at:
                candidate, number = left.pop(0)
                cell = measured(bench, job, grid, candidate, number, alone)
                if cell is None:
                    continue
                grid.add(cell)
                print(f"{_said(job, cell)}; {len(left)} left", flush=True)
        print(f"{whose}{left_text(grid, list(plan(job, grid, alone)), alone)}")


def left_text(grid: Grid, left: Sequence[tuple[Candidate, int]], alone: str) -> str:
    """How many are left, and how long they take by the cells so far."""
    took = [c.recording.seconds for c in grid.cells if c.recording.alone == alone] or [12.0]
    bare = len(grid.bare() & {c for c, number in left if not number}) if not alone else 0
    again = f", {bare} of them again, since only their loads are stored" if bare else ""
    return f"{len(left)} left{again}, about {len(left) * median(took) / 60:.0f} minutes"


def _said(job: Job, cell: Cell) -> str:
    loads = len(cell.recording.points)
    text = changes_text(cell.candidate, job.space.current) or "as it is"
    return f"{cell.recording.seconds:5.1f} s  {loads} loads  {cell.capacity:6.1f}/s  {text}"


@contextmanager
def bench_of(job: Job, programs: Any) -> Iterator[Bench]:
    book = TimeBook()
    with (
        tempfile.TemporaryDirectory(prefix="tune-grid-") as logs,
        serving(job, programs, Path(logs), book) as served,
        set_up_bench(served, Silent(), book, lambda: None) as bench,
    ):
        yield bench


def plan_of_firsts(job: Job, grid: Grid, alone: str) -> Iterator[tuple[Candidate, int]]:
    """Configs that were never measured, then those whose cells hold only loads."""
    done, bare = grid.firsts(alone), set() if alone else grid.bare()
    every = in_order(job.space)
    yield from ((c, 0) for c in every if c not in done)
    yield from ((c, 0) for c in every if c in bare)


def plan_of_rounds(
    job: Job, grid: Grid, winners: Mapping[str, Candidate], rounds: int
) -> Iterator[tuple[Candidate, int]]:
    """Each round begins with another config."""
    firsts, done = grid.firsts(), grid.rounds()
    best = sorted(firsts, key=lambda c: firsts[c], reverse=True)[:BEST]
    chosen = list(dict.fromkeys([*best, job.space.canonical(job.space.current), *winners.values()]))
    for number in range(rounds):
        at = number % len(chosen)
        for candidate in chosen[at:] + chosen[:at]:
            if len(done.get(candidate, [])) <= number:
                yield candidate, number + 1


def measured(
    bench: Bench, job: Job, grid: Grid, candidate: Candidate, number: int, alone: str
) -> Cell | None:
    """One config's capacity, with a second attempt after a failure; None if that fails too."""
    known = grid.firsts(alone)
    for attempt in range(2):
        begin = time.monotonic()
        seeds = count(1 + 100 * number)
        try:
            deployment = bench.deploy(candidate, fresh=number > 0)
            start = guess(candidate, known)
            if start is None or attempt:
                start = first_level(bench, job.plan, next(seeds)).level
            points = (found_again if number else found_first)(bench, job, BEGIN * start, seeds)
        except TrialError as error:
            print(f"failed: {error.message}", flush=True)
            bench.lost(error.message)
            continue
        took = round(time.monotonic() - begin, 2)
        points = sorted(points, key=lambda p: p.level)
        measurements = tuple(p.measurement for p in points)
        kind = deployment.kind.value
        recording = Recording(candidate, number, measurements, kind, took, alone)
        return Cell(recording, round(Bracket.of(points).capacity() or 0.0, 2))
    return None


def found_first(bench: Bench, job: Job, start: float, seeds: Iterator[int]) -> list[Point]:
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


def found_again(bench: Bench, job: Job, start: float, seeds: Iterator[int]) -> list[Point]:
    """As a trial of a run finds it."""
    objective, level = job.spec.objective, job.plan.levels.nearest(start)
    return [*evaluate(lambda n: bench.measure(n, next(seeds)), objective, job.plan, level).points]


def winner_of(job: Job, run: Path) -> Candidate:
    """What a run would write; the current config where it found nothing better."""
    result = json.loads((run / "result.json").read_text())
    winner = result.get("winner") or {}
    found = Candidate.from_json(winner) if winner else job.space.current
    return job.space.canonical(found)


def spec_alone(spec: Path, owner: str, directory: Path) -> Path:
    """The spec of one model of the mix, under the SLOs of the whole or of its own stream."""
    data = yaml.safe_load(spec.read_text())
    slos = [*data.get("slo", ()), *_slos_of_stream(data, owner)]
    told = {
        "model": owner,
        "repository": str((spec.parent / data["repository"]).resolve()),
        "workload": data["workload"],
        "slo": slos,
        "objective": data["objective"],
        "space": data["models"][owner]["space"],
    }
    path = directory / f"{owner}.yaml"
    path.write_text(yaml.safe_dump(told))
    return path


def _slos_of_stream(data: Mapping[str, Any], owner: str) -> Sequence[str]:
    streams = data.get("streams", {}).values()
    return [slo for stream in streams if stream["model"] == owner for slo in stream.get("slo", ())]


def report(job: Job, grid: Grid, winners: Mapping[str, Candidate]) -> None:
    worth = grid.worth()
    size = job.space.size().count
    if len(grid.firsts()) < size:
        print(f"only {len(grid.firsts())} of {size} configs are measured")
    ranked = sorted(worth, key=lambda c: worth[c], reverse=True)
    rounds = grid.rounds()
    if bare := grid.bare():
        print(f"{len(bare)} cells hold only loads, which a replay cannot use: `measure` fills them")
    settled = [c for c in ranked if c in rounds] or ranked  # those measured again, where there are
    best, current = settled[0], job.space.canonical(job.space.current)
    cells = [c.recording for c in grid.cells]
    spent = sum(r.seconds for r in cells if r.repeat == 0 and not r.alone)
    print(f"{len(ranked)} configs, {spent / 60:.0f} minutes; the best:")
    for candidate in settled[:5]:
        again = f", mean of {len(rounds[candidate])}" if candidate in rounds else ""
        print(f"  {worth[candidate]:6.1f}/s{again}  {_words(job, candidate)}")

    def share(what: str, candidate: Candidate) -> None:
        found = worth.get(candidate)
        said = "not in the grid" if found is None else f"{found / worth[best]:6.1%}"
        print(f"  {said}  {what}: {_words(job, candidate)}")

    print("share of the best:")
    share("the current config", current)
    for name, candidate in winners.items():
        share(name, candidate)
    if current not in worth:
        print("  the current config is not measured yet")
        return
    for order, candidate, tried in one_by_one(worth, current, float(job.spec.confirm.min_gain)):
        share(f"{' > '.join(order)}, one after the other, {tried} configs", candidate)
    alone = {owner: grid.firsts(owner) for owner in owners(ranked)}
    if all(alone.values()):
        values = {
            knob: value
            for owner, found in alone.items()
            for knob, value in _own(owner, max(found, key=lambda c, f=found: f[c])).items()
        }
        tried = sum(map(len, alone.values()))
        share(f"each by itself, {tried} configs", job.space.canonical(Candidate(values)))


def _own(owner: str, alone: Candidate) -> dict[Any, Any]:
    """The fields of a model that was tuned by itself, renamed as those of one among others."""
    from tuner.space.knob import Knob

    return {Knob(owner, knob.path): value for knob, value in alone.values.items()}


def _words(job: Job, candidate: Candidate) -> str:
    return changes_text(candidate, job.space.current) or "as it is"


if __name__ == "__main__":
    main()
