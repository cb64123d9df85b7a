"""Loads that a soak tries, its time, and what is credited: SIMULATED queues, the real code.

No server is started (`queues.py`). Rounds are measured on a server that is ``overstated`` times as
fast as the one of the soak, as where a load generator takes CPU that users' clients do not, or
short windows miss busy periods. Above its saturation a server may slow down by ``thrash``. An open
loop ends early as with tune's own client (--ends late) or perf_analyzer (--ends waiting).

    python benchmarks/claims/soaks.py --runs 24

Each row is a server and a world: the credited load over the true capacity (0 where no load held),
its share above 1, and the soaks of a config and their seconds, a start of 2 s for each included;
means over the runs.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from proof import entrant, rules_of
from queues import ALLOWED, OTHER, SERVERS, Server, SimulatedBench, Times, true_capacity

from tuner.load.latency import AnsweredRequests, figures_of, observe_open
from tuner.load.traffic.arrivals import arrivals_of
from tuner.load.watch.early_end import SloLost, TooManyLate, truncate
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement
from tuner.measurement.window import EarlyEnd, Window, soak_for
from tuner.proof.contender import Contender, measure_round
from tuner.proof.measured import MeasuredOnce
from tuner.proof.soak import first_level, soak
from tuner.record.confirmation import Role
from tuner.score.point import Point, judge_point

#: Noise of a server's capacity, how far the rounds overstate what lasts, and thrash.
WORLDS = ((0.0, 1.0, 1.0), (0.03, 1.0, 1.0), (0.03, 1.3, 1.2), (0.03, 1.3, 1.5), (0.03, 1.6, 1.3))
ROUNDS, START_S, LOOKS_S = 3, 2.0, 0.2
#: Of a server's saturation: above it the server slows down.
OVERLOADED = 0.97
ENDS = {"late": EarlyEnd.LATE, "waiting": EarlyEnd.WAITING}


@dataclass
class SoakBench(SimulatedBench):
    """Its soaks end early, and an overload slows it down by ``thrash``."""

    thrash: float = 1.0
    ends: EarlyEnd = EarlyEnd.LATE
    soak_count: int = 0

    def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        planned = soak_for(self.window(level), [1.0 - ALLOWED], level, self.soak_s, least_s)
        load = LoadPoint(Arrivals.POISSON, level)
        spans = (planned.warmup_s, planned.duration_s, planned.tail_s + 2.0)
        due_s = arrivals_of(load, spans, seed)
        rng = np.random.default_rng((self.luck, self.deployed, seed))
        over = level > OVERLOADED * self.server.saturation / self._speed
        answered_s = self.server.answered_s(due_s, rng, self._speed * (self.thrash if over else 1))
        window, stop_s = self._left_of(replace(planned, ends_early=self.ends), due_s, answered_s)
        self.load_s += stop_s
        self.soak_count += 1
        known = answered_s < stop_s
        requests = AnsweredRequests(
            (1e9 * due_s[known]).astype(np.int64),
            (1e9 * answered_s[known]).astype(np.int64),
            int(1e9 * stop_s),
        )
        figures = figures_of(observe_open(requests, due_s, window), load, seed)
        measurement = Measurement.of_all(figures)
        return judge_point([self.slo], measurement)

    def _left_of(self, planned: Window, due_s: Times, answered_s: Times) -> tuple[Window, float]:
        """The window that is measured, and when the load ends."""
        now, ascending = 0.0, np.sort(answered_s)

        def progress() -> tuple[float, dict[str, Times]]:
            return now, {"": np.where(answered_s <= now, answered_s, np.inf)}

        lost = (
            TooManyLate({"": due_s}, planned, progress, lambda: now)
            if self.ends is EarlyEnd.LATE
            else SloLost(
                {"": due_s}, planned, lambda: int(np.searchsorted(ascending, now)), lambda: now
            )
        )
        while now < planned.warmup_s + planned.duration_s:
            if lost():
                return truncate(planned, 0, round(1e9 * now)), now
            now += LOOKS_S
        return planned, planned.total_s


@dataclass(frozen=True)
class Soaking:
    """``credited``: share of the true capacity, 0 where no load held."""

    credited: float
    seconds: float
    count: int


def soaking(
    server: Server, world: tuple[float, float, float], run: int, ends: EarlyEnd
) -> Soaking | None:
    """One soak; None where no round met the SLO."""
    noise, overstated, thrash = world
    rules, rng = rules_of(server, run)
    bench = SoakBench(
        server,
        run,
        {OTHER: 1.0 / overstated},
        noise,
        thrash=thrash,
        ends=ends,
    )
    measured = MeasuredOnce(bench)  # type: ignore[arg-type]
    contender = Contender(entrant(server, OTHER, 1.0, rng))
    for number in range(ROUNDS):
        measure_round(measured, contender, rules, number, Role.CANDIDATE)
    if not contender.rounds or not contender.levels():
        return None
    bench.slower, bench.load_s = {}, 0.0
    outcome = soak(measured, OTHER, contender, first_level(contender, rules), rules, lambda _: None)
    credited = (outcome.credited_level or 0.0) / true_capacity(server)
    return Soaking(credited, bench.load_s + START_S * bench.soak_count, bench.soak_count)


def rows(name: str, runs: int, ends: EarlyEnd) -> Iterator[str]:
    for world in WORLDS:
        made = [soaking(SERVERS[name], world, run, ends) for run in range(runs)]
        known = [s for s in made if s is not None]
        noise, overstated, thrash = world
        if not known:
            yield f"| {name} | {noise:.0%} | {overstated:g} | {thrash:g} | no round met the SLO |"
            continue
        least = sorted(s.credited for s in known)[math.floor(len(known) / 10)]
        cells = (
            name,
            f"{noise:.0%}",
            f"{overstated:g}",
            f"{thrash:g}",
            f"{fmean(s.credited for s in known):.3f} ({least:.3f})",
            f"{fmean(s.credited > 1.0 for s in known):.0%}",
            f"{fmean(s.count for s in known):.1f}",
            f"{fmean(s.seconds for s in known):.0f}",
        )
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--server", default="", help="only those whose name contains this")
    parser.add_argument("--ends", choices=ENDS, default="late")
    options = parser.parse_args()
    heads = "server, p99 limit|noise|overstated|thrash|credited (9 of 10)|above 1|soaks|seconds"
    print(f"| {heads.replace('|', ' | ')} |\n{'|---' * 8}|", flush=True)
    for name in (n for n in SERVERS if options.server in n):
        for row in rows(name, options.runs, ENDS[options.ends]):
            print(row, flush=True)


if __name__ == "__main__":
    main()
