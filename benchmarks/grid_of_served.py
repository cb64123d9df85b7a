"""Measures a grid of the configs of several models served together, and what a run reaches of it.

    python benchmarks/grid_of_served.py SPEC measure --seconds 600    # again until "0 left"
    python benchmarks/grid_of_served.py SPEC alone --seconds 600      # each model by itself
    python benchmarks/grid_of_served.py SPEC again --run results/RUN  # the best, in turn
    python benchmarks/grid_of_served.py SPEC report --run results/RUN

SPEC is a spec of several models (``benchmarks/served_models/*.yaml``). Every config of its space is
served on a real server and put under the spec's own load; its capacity is found as a trial of `tune
run` finds it, beginning where the most similar configs of the grid have theirs. The best of a grid
of single measurements looks better than it is: ``again`` measures the best ones, the current config
and the winners of runs in turn, on fresh servers with other arrivals, and the report goes by that.

The report also says where somebody gets who tunes one model after the other, in each order, with
the whole under load (from the grid itself), and who tunes each model by itself (``alone``). Goes on
where it stopped. Nothing is written into the model repository.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from served_grid import Cell, Grid, one_by_one, owners

from tuner.bench.evaluate import evaluate
from tuner.bench.protocol import Bench
from tuner.bench.timebook import TimeBook
from tuner.errors import TrialError
from tuner.score.capacity import Bracket
from tuner.space.candidate import Candidate
from tuner.space.words import changes_text
from tuner.steps.events import Silent
from tuner.steps.job import Job, Request, prepare
from tuner.steps.looking import first_level
from tuner.steps.rig import set_up_bench
from tuner.steps.serving import serving
from tuner.steps.tools import find_programs

RESULTS = Path(__file__).parent / "results"
#: A first measurement begins at this share of what similar configs stand.
BEGIN = 0.9
#: How many of the best are measured again, and in how many rounds.
BEST, ROUNDS = 6, 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("spec", type=Path)
    parser.add_argument("what", choices=("measure", "alone", "again", "report"))
    parser.add_argument("--seconds", type=float, default=600.0, help="length of this slot")
    parser.add_argument("--run", type=Path, action="append", default=[], help="a run's directory")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of `again`")
    parser.add_argument("--file", type=Path, help="of the grid; default results/SPEC-grid.jsonl")
    args = parser.parse_args()
    path = args.file or RESULTS / f"{args.spec.stem}-grid.jsonl"
    job = prepare(Request(spec=args.spec))
    stop_at = time.monotonic() + args.seconds
    winners = {str(run): winner_of(job, run) for run in args.run}
    if args.what == "report":
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
    """Measures what is left, as far as the time goes."""
    with find_programs(job, dict(os.environ)) as programs:
        grid = Grid.read(path, {"cpu": programs.host.cpu, "versions": programs.versions()})
        left = list(plan(job, grid, alone))
        said_left(grid, len(left), alone)
        begin, done = time.monotonic(), 0
        with bench_of(job, programs) as bench:
            for candidate, number in left:
                if time.monotonic() > stop_at:
                    break
                cell = measured(bench, job, grid, candidate, number, alone)
                if cell is not None:
                    grid.add(cell)
                    done += 1
                    text = changes_text(candidate, job.space.current)
                    print(f"{cell.seconds:5.1f} s  {cell.capacity:6.1f}/s  {text}", flush=True)
        each = (time.monotonic() - begin) / max(done, 1)
        print(f"{len(left) - done} left, about {(len(left) - done) * each / 60:.0f} minutes")


def said_left(grid: Grid, left: int, alone: str) -> None:
    took = [c.seconds for c in grid.cells] or [10.0]
    whose = f"{alone} alone: " if alone else ""
    print(f"{whose}{left} left, about {left * median(took) / 60:.0f} minutes", flush=True)


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
    done = grid.firsts(alone)
    """Those with the most instances first: where a grid is cut short, it has the best of them."""
    return ((c, 0) for c in reversed(list(job.space.enumerate())) if c not in done)


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
    """One config's capacity, once more where something failed; None where it fails again."""
    for _ in range(2):
        begin = time.monotonic()
        seeds = iter(range(1 + 100 * number, 100 + 100 * number))
        try:
            bench.deploy(candidate, fresh=number > 0)
            start = guess(candidate, grid.firsts(alone))
            start = start or first_level(bench, job.plan, next(seeds)).level
            found = evaluate(
                lambda level: bench.measure(level, next(seeds)),  # noqa: B023
                job.spec.objective,
                job.plan,
                job.plan.levels.nearest(start),
            )
        except TrialError as error:
            print(f"failed: {error.message}", flush=True)
            bench.lost(error.message)
            continue
        capacity = Bracket.of(found.points).capacity() or 0.0
        loads = tuple((p.level, p.passed) for p in found.points)
        took = round(time.monotonic() - begin, 2)
        return Cell(candidate, round(capacity, 2), number, alone, loads, took)
    return None


def guess(candidate: Candidate, known: Mapping[Candidate, float]) -> float | None:
    """A little less than what the configs stand that differ least."""
    stood = {c: capacity for c, capacity in known.items() if capacity}
    if candidate in stood:
        return stood[candidate]
    least = min((c.differences(candidate) for c in stood), default=0)
    near = [v for c, v in stood.items() if c.differences(candidate) == least]
    return BEGIN * median(near) if near else None


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
    count = job.space.size().count
    if len(grid.firsts()) < count:
        print(f"only {len(grid.firsts())} of {count} configs are measured")
    ranked = sorted(worth, key=lambda c: worth[c], reverse=True)
    rounds = grid.rounds()
    settled = [c for c in ranked if c in rounds] or ranked  # those measured again, where there are
    best, current = settled[0], job.space.canonical(job.space.current)
    spent = sum(c.seconds for c in grid.cells if c.round == 0 and not c.alone)
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
    """The fields of a model that was tuned by itself, as those of one among others."""
    from tuner.space.knob import Knob

    return {Knob(owner, knob.path): value for knob, value in alone.values.items()}


def _words(job: Job, candidate: Candidate) -> str:
    return changes_text(candidate, job.space.current) or "as it is"


if __name__ == "__main__":
    main()
