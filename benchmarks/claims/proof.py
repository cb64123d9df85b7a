"""What the proof decides, and whether what it claims holds: SIMULATED queues, the real code.

No server is started. Rounds, looks, decisions and soaks are those of `tune run`; only the answers
come from small queues whose service times, and so whose capacities, are known (`queues.py`). The
search is taken to have found each capacity within 5 %.

    python benchmarks/claims/proof.py --runs 100             # both tables, on standard output
    python benchmarks/claims/proof.py --runs 600 --keep      # into decisions.csv and claims.csv
    python benchmarks/claims/proof.py --server quickstart --noise 3

A noise is the standard deviation of a config's capacity from one start of a server to the next.
Exit code 1 if a limit of the project is missed; the tables mark those cells with an exclamation
mark.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean, median

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from queues import (
    ALLOWED,
    CURRENT,
    OTHER,
    SERVERS,
    TRUTHS,
    Server,
    SimulatedBench,
    long_run_late,
    slower_by,
    true_capacity,
)

from tuner.measurement.measurement import Arrivals
from tuner.proof.contender import Contender, measure_round
from tuner.proof.entrants import Entrant, ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.proof.rounds import RoundsResult, run_rounds
from tuner.proof.soak import first_level, soak
from tuner.record.confirmation import Role
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan
from tuner.spec.model import Confirm
from tuner.spec.slo import Objective

#: The search knows a capacity within this share (standard deviation).
SEARCHED = 0.05
#: Share of the machine that others take beside one side, where one is disturbed.
TAKEN = 0.10
#: True ratios of capacities: nothing to gain, the least that is worth a change, and two gains.
RATIOS = (1.0, 1.02, 1.1, 1.2)
#: Rounds that a claim rests on: a single one where the current config is far behind.
ROUNDS = (1, 3)


def rules_of(server: Server, run: int) -> tuple[ProofRules, np.random.Generator]:
    bench = SimulatedBench(server, luck=run)
    plan = LoadPlan(Arrivals.POISSON, None, LevelRange(0.1, 1e5))
    seed = 1000 * (run + 1) + 500_000
    rules = ProofRules(Objective.goodput(), (bench.slo,), plan, Confirm(), seed)
    return rules, np.random.default_rng((7, run))


def entrant(server: Server, candidate: object, ratio: float, rng: np.random.Generator) -> Entrant:
    luck = math.exp(SEARCHED * float(rng.standard_normal()))
    level = true_capacity(server) / ratio * luck
    return Entrant(candidate, level, level * (1.0 + SEARCHED))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Rounds:
    """One run of the rounds between a config and one with ``ratio`` times its capacity."""

    ratio: float
    race: RoundsResult
    load_s: float

    @property
    def better(self) -> bool:
        return bool(self.race.better)

    @property
    def holds(self) -> bool:
        """Whether the truth is in the interval; where the other config left, none was claimed."""
        ratio = self.race.ratios.get(OTHER)
        return ratio is None or ratio.low <= self.ratio <= ratio.high

    @property
    def count(self) -> int:
        return len(self.race.current.rounds)


def rounds(server: Server, ratio: float, noise: float, run: int, taken: float = 0.0) -> Rounds:
    rules, rng = rules_of(server, run)
    bench = SimulatedBench(
        server,
        luck=run,
        slower={CURRENT: slower_by(server, ratio)},
        noise=noise,
        taken={CURRENT: taken} if taken else {},
    )
    now, other = entrant(server, CURRENT, ratio, rng), entrant(server, OTHER, 1.0, rng)
    measured = MeasuredOnce(bench)  # type: ignore[arg-type]
    race = run_rounds(measured, now, [other], rules, lambda: False, lambda *_: None)
    return Rounds(ratio, race, bench.load_s)


@dataclass(frozen=True)
class Claim:
    """``credited``: share of the true capacity, None where no soak held; ``late``: in the long
    run at that load."""

    credited: float | None
    late: float
    load_s: float


def claim(server: Server, count: int, noise: float, run: int) -> Claim:
    rules, rng = rules_of(server, run)
    bench = SimulatedBench(server, luck=run, noise=noise)
    measured = MeasuredOnce(bench)  # type: ignore[arg-type]
    contender = Contender(entrant(server, OTHER, 1.0, rng))
    for number in range(count):
        measure_round(measured, contender, rules, number, Role.CANDIDATE)
    outcome = soak(measured, OTHER, contender, first_level(contender, rules), rules, lambda _: None)
    if outcome.credited_level is None:
        return Claim(None, 0.0, bench.load_s)
    late = long_run_late(server, outcome.credited_level, [50 * run + i for i in range(TRUTHS)])
    return Claim(outcome.credited_level / true_capacity(server), late, bench.load_s)


@dataclass(frozen=True)
class Cell:
    """A figure with the limit that it is held to; None: without one."""

    text: str
    missed: bool = False

    def __str__(self) -> str:
        return f"{self.text} !" if self.missed else self.text


def share(values: Sequence[bool], least: float | None = None, most: float | None = None) -> Cell:
    """A share of runs; chance is allowed for: two standard deviations of a binomial share."""
    mean, limit = fmean(values), most if least is None else least
    chance = 0.0 if limit is None else 2.0 * math.sqrt(limit * (1.0 - limit) / len(values))
    missed = (least is not None and mean < least - chance) or (
        most is not None and mean > most + chance
    )
    return Cell(f"{mean:.1%}", missed)


Row = list[Cell | str]
DECISIONS = (
    "server, p99 limit",
    "noise",
    "1.00 called better",
    "1.02 called better",
    "1.10 found",
    "1.20 found",
    "equal: kept",
    "interval holds",
    "rounds, 1.00 and 1.20",
    "load s, 1.20",
)
CLAIMS = ("server, p99 limit", "rounds", "credited, median", "least", "false", "no claim", "load s")


def decisions(name: str, server: Server, noise: float, runs: int, taken: float) -> Row:
    def many(ratio: float, count: int) -> list[Rounds]:
        return [rounds(server, ratio, noise, run, taken) for run in range(count)]

    few = max(runs // 4, 20)
    equal, least, ten, twenty = (many(r, runs if r == 1.0 else few) for r in RATIOS)
    every = [*equal, *least, *ten, *twenty]
    beside = bool(taken)
    return [
        name,
        f"{100 * noise:.0f} %"
        + (f", {TAKEN:.0%} taken beside the slower, half of the time" if beside else ""),
        share([r.better for r in equal], most=0.025),
        share([r.better for r in least]),
        share([r.better for r in ten], least=0.95 if noise == 0.03 and not beside else None),
        share([r.better for r in twenty], least=0.95 if noise == 0.06 and not beside else None),
        share([r.race.no_gain for r in equal], least=None if beside else _kept(noise)),
        share([r.holds for r in every], least=0.93),
        f"{fmean(r.count for r in equal):.1f}, {fmean(r.count for r in twenty):.1f}",
        f"{median(r.load_s for r in twenty):.0f}",
    ]


def _kept(noise: float) -> float | None:
    return {0.0: 0.95, 0.03: 0.95, 0.06: 0.60}.get(noise)


def claims(name: str, server: Server, count: int, runs: int) -> Row:
    results = [claim(server, count, 0.0, run) for run in range(runs)]
    made = [c for c in results if c.credited is not None]
    credited = [c.credited for c in made if c.credited is not None]
    middle = median(credited)
    return [
        name,
        str(count),
        Cell(f"{middle:.3f}", middle < 0.90),
        f"{min(credited):.3f}",
        share([c.late > ALLOWED for c in made], most=0.05),
        f"{len(results) - len(made)} of {len(results)}",
        f"{median(c.load_s for c in results):.0f}",
    ]


def table(heads: Sequence[str], rows: Iterator[Row]) -> list[Row]:
    """The rows, printed as they come."""
    kept: list[Row] = []
    for row in chain((list(heads), ["---"] * len(heads)), rows):
        print("| " + " | ".join(map(str, row)) + " |", flush=True)
        kept.append(row)
    return kept[2:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100, help="of the boundary; the rest a fourth")
    parser.add_argument("--server", default="", help="only those whose name contains this")
    parser.add_argument("--noise", type=float, help="percent; default: 0, 3 and 6")
    parser.add_argument("--only", choices=("decisions", "claims"))
    parser.add_argument("--keep", action="store_true", help="in decisions.csv and claims.csv")
    options = parser.parse_args()
    chosen = [(n, s) for n, s in SERVERS.items() if options.server in n]
    noises = (0.0, 0.03, 0.06) if options.noise is None else (options.noise / 100.0,)
    missed = False
    for name, heads, rows in (
        (
            "decisions",
            DECISIONS,
            (
                decisions(n, s, noise, options.runs, taken)
                for n, s in chosen
                for noise, taken in [
                    *((x, 0.0) for x in noises),
                    *([(0.03, TAKEN)] * (len(noises) > 1)),
                ]
            ),
        ),
        (
            "claims",
            CLAIMS,
            (claims(n, s, c, max(options.runs // 3, 20)) for n, s in chosen for c in ROUNDS),
        ),
    ):
        if options.only not in (None, name):
            continue
        body = table(heads, rows)
        missed |= any(isinstance(cell, Cell) and cell.missed for row in body for cell in row)
        if options.keep:
            with Path(__file__).with_name(f"{name}.csv").open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([heads, *body])
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
