"""Configs that are equal, where that is hard to see: SIMULATED queues, the real code.

No server is started (`queues.py`). The other config has exactly the capacity of the current one.

    python benchmarks/claims/adverse.py --runs 200
    python benchmarks/claims/adverse.py --runs 400 --only low-loads

``low-loads``: a few requests are slow, or the server pauses, and the p99 of a short window may miss
its bound at a tenth of the load by chance. ``listed``: the one load that the spec lists is the
capacity, so that either config may miss it. ``unlike``: the queues of the two configs are of
different kinds, and short windows overstate the capacity of one more than that of the other.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from proof import entrant, rules_of
from queues import (
    CURRENT,
    OTHER,
    SERVERS,
    TRUTHS,
    Server,
    SimulatedBench,
    Times,
    long_run_late,
    true_capacity,
)

from tuner.measurement.measurement import Arrivals
from tuner.measurement.window import Window
from tuner.proof.entrants import Entrant, slo_missed_at_low_load
from tuner.proof.measured import MeasuredOnce
from tuner.proof.rounds import RoundsResult, run_rounds
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan
from tuner.score.point import Point
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec

RATES = LevelRange(0.1, 1e5)


@dataclass(frozen=True)
class Uneven(Server):
    """An unbatched queue with slow requests or pauses.

    Attributes:
        slow: The share of slow requests, and how many times as long they take.
        pause: The length of a pause of the server, and the mean time between two, in seconds.
    """

    slow: tuple[float, float] = (0.0, 1.0)
    pause: tuple[float, float] = (0.0, 1.0)

    def answered_s(self, due_s: Times, rng: np.random.Generator, slower: float = 1.0) -> Times:
        pause_s, between_s = self.pause
        count = round(2.0 * (float(due_s[-1]) + 60.0) / between_s) if pause_s else 0
        at = np.cumsum(rng.exponential(between_s, count + 1))  # in time without pauses
        begun = np.searchsorted(at + pause_s * np.arange(at.size), due_s, "right")
        due = np.where(begun > 0, np.maximum(due_s - begun * pause_s, at[begun - 1]), due_s)
        share, times = self.slow
        service = slower * self.base_s * np.where(rng.random(due.size) < share, times, 1.0)
        done = np.cumsum(service)
        answered = done + np.maximum.accumulate(due - (done - service))
        return answered + pause_s * np.searchsorted(at, answered)


@dataclass
class AdverseBench(SimulatedBench):
    """Each candidate is served by a server of a separate kind."""

    servers: Mapping[Candidate, Server] = field(default_factory=dict)

    def deploy(
        self, candidate: Candidate, *, fresh: bool = False, in_production: bool = False
    ) -> None:
        self.server = self.servers.get(candidate, self.server)
        super().deploy(candidate, fresh=fresh, in_production=in_production)

    def one_at_a_time(self, seed: int) -> Mapping[str, float]:
        return {"": self.server.base_s}

    def once(self, level: float, seed: int, window: Window) -> Point:
        return self._judged(level, window, seed)


FAST = Uneven(0.65e-3, p99_s=0.02)
LOW: Mapping[str, Uneven] = {
    "0.5% of requests take 26 ms": replace(FAST, slow=(0.005, 40.0)),
    "0.8% of requests take 26 ms": replace(FAST, slow=(0.008, 40.0)),
    "a pause of 80 ms each 20 s": replace(FAST, pause=(0.08, 20.0)),
    "3% of requests take 26 ms": replace(FAST, slow=(0.03, 40.0)),
    "6% of requests take 26 ms": replace(FAST, slow=(0.06, 40.0)),
}
#: The load of which a tenth is measured, in requests per second.
LOW_OF = 300.0


def low_loads(runs: int) -> Iterator[list[str]]:
    yield ["0.65 ms a request, p99 <= 20 ms", f"late at {LOW_OF / 10:g}/s", "said to miss"]
    space = {"instance_group.count": {"int": [1, 2]}}
    drafted = {"model": "m", "repository": "r", "slo": ["p99_latency <= 20ms"], "space": space}
    plan, job = LoadPlan(Arrivals.POISSON, None, RATES), SimpleNamespace()
    for name, server in LOW.items():
        missed = 0
        for run in range(runs):
            spec = Spec.model_validate({**drafted, "search": {"seed": run}})
            bench = AdverseBench(server, luck=run)
            session: Any = SimpleNamespace(plan=plan, spec=spec, bench=bench, job=job)
            job.space = SimpleNamespace(queue_delay_us=lambda _: 0)
            missed += slo_missed_at_low_load(session, OTHER, LOW_OF) is not None
        late = long_run_late(server, LOW_OF / 10.0, range(TRUTHS))
        yield [name, f"{late:.2%}", f"{missed} of {runs}"]


def raced(current: Server, other: Server, noise: float, run: int, *, listed: bool) -> RoundsResult:
    """The rounds of two configs with the capacity of ``current``."""
    rules, rng = rules_of(current, run)
    capacity = true_capacity(current)
    slower = {OTHER: 1.0 if other == current else slowdown(other, capacity)}
    bench = AdverseBench(current, run, slower, noise, servers={CURRENT: current, OTHER: other})
    entrants = [entrant(current, candidate, 1.0, rng) for candidate in (CURRENT, OTHER)]
    if listed:
        level = float(f"{capacity:.5g}")
        rules = replace(rules, plan=LoadPlan(Arrivals.POISSON, (level,), RATES))
        entrants = [Entrant(e.candidate, level) for e in entrants]
    measured = MeasuredOnce(bench)  # type: ignore[arg-type]
    now, finalist = entrants
    return run_rounds(measured, now, [finalist], rules, lambda: False, lambda *_: None)


@cache
def slowdown(server: Server, capacity: float) -> float:
    """By how much a server must be slower to have this capacity."""
    low, high = 0.1, 5.0
    for _ in range(10):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if true_capacity(server, middle) > capacity else (low, middle)
    return math.sqrt(low * high)


def listed_loads(runs: int) -> Iterator[list[str]]:
    yield ["server, p99 limit", "noise", "equal called better", "kept"]
    for name in (n for n in SERVERS if "40 ms" in n):
        for noise in (0.03, 0.06):
            races = [
                raced(SERVERS[name], SERVERS[name], noise, r, listed=True) for r in range(runs)
            ]
            better, kept = sum(bool(r.better) for r in races), sum(r.no_gain for r in races)
            yield [name, f"{noise:.0%}", f"{better} of {runs}", str(kept)]


#: The current and another config: unbatched 6.5 ms, p99 <= 100 ms, and batches to 8.
LONE = SERVERS["unbatched 6.5 ms, p99 <= 100 ms"]
BATCHES = replace(SERVERS["batches to 8 of 20 + 5n ms, p99 <= 200 ms"], p99_s=0.1)


def unlike(runs: int) -> Iterator[list[str]]:
    yield ["current, other, p99 <= 100 ms", "called better", "kept", "ratio, median"]
    for name, current, other in (
        ("batches to 8, unbatched", BATCHES, LONE),
        ("unbatched, batches to 8", LONE, BATCHES),
    ):
        races = [raced(current, other, 0.03, run, listed=False) for run in range(runs)]
        better, kept = sum(bool(r.better) for r in races), sum(r.no_gain for r in races)
        ratio = median(r.ratios[OTHER].estimate for r in races if OTHER in r.ratios)
        yield [name, f"{better} of {runs}", str(kept), f"{ratio:.3f}"]


TABLES = {"low-loads": low_loads, "listed": listed_loads, "unlike": unlike}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--only", choices=TABLES)
    options = parser.parse_args()
    for name, rows in TABLES.items():
        if options.only not in (None, name):
            continue
        for number, row in enumerate(rows(options.runs)):
            print(f"| {' | '.join(row)} |", flush=True)
            if number == 0:
                print("|---" * len(row) + "|", flush=True)
        print()


if __name__ == "__main__":
    main()
