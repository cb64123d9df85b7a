"""Does the load that a run claims hold in the long run? SIMULATED queues, the real code.

No server is started. Arrivals, windows, verdicts, capacity search and confirmation are those of
`tune run`; only the answers come from small queues whose service times are known. The
credited load is then checked by runs of 120,000 requests under free Poisson arrivals, which also
show the true capacity.

    python benchmarks/claims/claims.py
    python benchmarks/claims/claims.py --server quickstart --runs 40
    python benchmarks/claims/claims.py --soak 0
    python benchmarks/claims/claims.py --steadiness

Prints one row per server: the credited load and the capacity found, both relative to the true
capacity, the share of late requests in the long run at the credited load (the SLO allows 1 %), and
seconds of load. A claim is false if more requests are late in the long run than the SLO allows. The
credited load is that of the soak less the headroom, as in a run; ``--soak 0`` shows the rounds' own
credit. Exit code 1 if the median credit is below 90 % of the true capacity or more than 5 % of the
claims are false. ``--steadiness``: how often loads below and above the saturation pass.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import geometric_mean, median

import numpy as np
import numpy.typing as npt

from tuner.bench.evaluate import Sendable, evaluate
from tuner.confirm.confirm import Confirmation, Entrant, Rules, confirm
from tuner.confirm.soak import (
    MOST_WINDOWS,
    SoakRules,
    claim_window_s,
    first_level,
    remembered_s,
    soak,
)
from tuner.load.latency import Requests, measurement_of, observe_open
from tuner.load.traffic.arrivals import arrivals_of
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement
from tuner.measurement.window import LatencyBound, Window, lengthen, soak_for, window_for
from tuner.score.capacity import Bracket, LevelRange
from tuner.score.judge import passes
from tuner.score.next_load import LoadPlan
from tuner.score.point import Point, judge_point
from tuner.space.candidate import Candidate
from tuner.spec.metrics import P99_LATENCY
from tuner.spec.model import Confirm
from tuner.spec.slo import Goal, Objective, Slo

Times = npt.NDArray[np.float64]

LONG_RUN = 120_000
WINDOW_S = 3.0
#: How much single service times vary, and how many long runs determine the truth.
JITTER, TRUTHS = 0.03, 4
#: Service time of the current config for a request, relative to that of the other one.
SLOWER = 1.6
CREDITED_LEAST, FALSE_MOST = 0.85, 0.05
ALLOWED = 0.01
HEADROOM = float(Confirm().headroom)


@dataclass(frozen=True)
class Server:
    """A queue: ``instances`` serve up to ``most`` requests at once in ``base_s`` + n ``per_s``."""

    base_s: float
    per_s: float = 0.0
    instances: int = 1
    most: int = 1
    p99_s: float = 0.04

    @property
    def saturation(self) -> float:
        return self.instances * self.most / (self.base_s + self.most * self.per_s)

    def answered_s(self, due_s: Times, rng: np.random.Generator, slower: float = 1.0) -> Times:
        """When each request is answered, first come, first served."""
        if self.most > 1:
            return self._batched(due_s, rng, slower)
        answers = np.empty_like(due_s)
        # Equal instances take turns, since service times are nearly equal.
        for one in range(self.instances):
            own = slice(one, None, self.instances)
            due = due_s[own]
            service = slower * self.base_s * (1.0 + JITTER * rng.standard_normal(due.size))
            done = np.cumsum(service)
            answers[own] = done + np.maximum.accumulate(due - (done - service))
        return answers

    def _batched(self, due_s: Times, rng: np.random.Generator, slower: float) -> Times:
        answers, due, first, free_s = np.empty_like(due_s), due_s.tolist(), 0, 0.0
        while first < len(due):
            free_s, behind = max(free_s, due[first]), first + 1
            while behind < min(first + self.most, len(due)) and due[behind] <= free_s:
                behind += 1
            work_s = slower * (self.base_s + (behind - first) * self.per_s)
            free_s += work_s * (1.0 + JITTER * float(rng.standard_normal()))
            answers[first:behind] = free_s
            first = behind
        return answers


SERVERS: Mapping[str, Server] = {
    "unbatched 6.5 ms, p99 <= 40 ms": Server(6.5e-3, p99_s=0.04),
    "unbatched 6.5 ms, p99 <= 100 ms": Server(6.5e-3, p99_s=0.1),
    "batches to 8 of 20 + 5n ms, p99 <= 200 ms": Server(20e-3, 5e-3, most=8, p99_s=0.2),
    "4 x 5 ms (800/s), p99 <= 1 s": Server(5e-3, instances=4, p99_s=1.0),
    "quickstart: batches to 32 of 5 + 0.25n ms, p99 <= 40 ms": Server(
        5e-3, 0.25e-3, most=32, p99_s=0.04
    ),
    "batches to 64 of 1 + 0.03n ms (22,000/s), p99 <= 10 ms": Server(
        1e-3, 0.03e-3, most=64, p99_s=0.01
    ),
    "unbatched 250 ms, p99 <= 2 s": Server(0.25, p99_s=2.0),
    "unbatched 1 s, p99 <= 6 s": Server(1.0, p99_s=6.0),
}

CURRENT, OTHER = (Candidate.of_models({"m": {"instance_group.count": n}}) for n in (1, 2))


@dataclass
class SimulatedBench:
    """The bench of `tune run`, answered from a queue; ``load_s``: seconds of load so far."""

    server: Server
    luck: int
    soak_s: float = 0.0
    load_s: float = 0.0
    slower: float = 1.0
    deployed: int = field(default=0)
    window_s: float = WINDOW_S
    sendable: Sendable = field(default_factory=Sendable)
    searching: bool = False

    @property
    def slo(self) -> Slo:
        bound = self.server.p99_s
        return Slo(P99_LATENCY, 1e6 * bound, f"p99 <= {bound:g}s")

    def deploy(self, candidate: Candidate, *, fresh: bool = False) -> None:
        self.slower = SLOWER if candidate == CURRENT else 1.0
        self.deployed += 1

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        return judge_point([self.slo], self.measurement(level, seed, least_s))

    def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        window = soak_for(self._window(level), [0.99], level, self.soak_s, least_s)
        return judge_point([self.slo], self._loaded(level, window, seed))

    def measurement(self, level: float, seed: int, least_s: float = 0.0) -> Measurement:
        return self._loaded(level, lengthen(self._window(level), least_s), seed)

    def _window(self, level: float) -> Window:
        window = window_for(
            [0.99],
            level,
            window_s=self.window_s,
            max_window_s=600.0,
            warmup_s=0.5,
            latency_bound_s=self.server.p99_s,
            brief=self.searching,
        )
        return replace(window, bounds=(LatencyBound(0.99, self.server.p99_s),))

    def _loaded(self, level: float, window: Window, seed: int) -> Measurement:
        self.load_s += window.total_s
        return self._measured(LoadPoint(Arrivals.POISSON, level), window, seed)

    def _measured(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        due_s = arrivals_of(load, (window.warmup_s, window.duration_s, window.tail_s + 2.0), seed)
        rng = np.random.default_rng((self.luck, self.deployed, seed))
        answered_ns = 1e9 * self.server.answered_s(due_s, rng, self.slower)
        in_time = answered_ns < 1e9 * window.total_s
        requests = Requests(
            (1e9 * due_s[in_time]).astype(np.int64),
            answered_ns[in_time].astype(np.int64),
            int(1e9 * window.total_s),
        )
        return measurement_of(observe_open(requests, due_s, window), load, seed)


def long_run_late(server: Server, level: float, seeds: Sequence[int]) -> float:
    """Share of late requests under free Poisson arrivals."""
    late = []
    for seed in seeds:
        rng = np.random.default_rng(10_000_000 + seed)
        due_s = np.cumsum(rng.exponential(1.0 / level, LONG_RUN))
        late.append(np.mean(server.answered_s(due_s, rng) - due_s > server.p99_s))
    return float(np.mean(late))


def true_capacity(server: Server) -> float:
    """The load at which 1 % of requests are late in the long run."""
    low, high = 0.3 * server.saturation, server.saturation
    for _ in range(9):
        middle = (low * high) ** 0.5
        if long_run_late(server, middle, range(TRUTHS)) > 0.01:
            high = middle
        else:
            low = middle
    return low


def confirmed(bench: SimulatedBench, seed: int) -> Confirmation:
    """A trial of each config and the rounds between them, as in a run with this seed."""
    levels = LevelRange(0.1, 1e5)
    objective = Objective(Goal.MAXIMIZE_GOODPUT)
    plan = LoadPlan(Arrivals.POISSON, None, levels)
    entrants = []

    def window_of(points: Sequence[Point]) -> float:
        return min(claim_window_s(points, [bench.slo]), MOST_WINDOWS * WINDOW_S)

    bench.searching = True
    for candidate in (CURRENT, OTHER):
        bench.deploy(candidate)
        start = 0.8 * bench.server.saturation / bench.slower
        found = evaluate(lambda level: bench.measure(level, seed), objective, plan, start)
        level = Bracket.of(found.points).capacity() or min(p.level for p in found.points)
        entrants.append(Entrant(candidate, level, window_s=window_of(found.points)))
    bench.searching = False
    rules = Rules(
        objective, levels, 3, 0.02, seed + 500_000, lambda _: None, window_of, bench.soak_s > 0.0
    )
    return confirm(bench, entrants[0], entrants[1:], rules)[0]


@dataclass(frozen=True)
class Claim:
    credited: float
    capacity: float
    late: float
    load_s: float


def held_level(bench: SimulatedBench, proof: Confirmation, seed: int) -> float | None:
    """The final claim: the load that held in the soak; None if none did."""
    plan = LoadPlan(Arrivals.POISSON, None, LevelRange(0.1, 1e5))
    least_s = remembered_s(proof.points)
    rules = SoakRules(
        [bench.slo], plan, seed, bench.soak_s, least_s, lambda _: None, lambda _: None, HEADROOM
    )
    found = soak(bench, OTHER, first_level(proof, plan), rules)
    return None if found.held is None else (1.0 - found.headroom) * found.held.level


def claims(server: Server, runs: int, soak_s: float) -> list[Claim]:
    found = []
    for run in range(runs):
        bench = SimulatedBench(server, luck=run, soak_s=soak_s)
        result = confirmed(bench, 1000 * (run + 1))
        if not result.own.rounds:
            continue
        level = result.level
        if soak_s:
            held = held_level(bench, result, 1000 * (run + 1) + 600_000)
            if held is None:
                print(f"run {run}: no soak held, from {level:.4g}/s on", flush=True)
                continue
            level = held
        late = long_run_late(server, level, [50 * run + i for i in range(TRUTHS)])
        found.append(Claim(level, geometric_mean(result.own.capacities()), late, bench.load_s))
    return found


def told(name: str, server: Server, runs: int, soak_s: float) -> bool:
    true, found = true_capacity(server), claims(server, runs, soak_s)
    credited = [c.credited / true for c in found]
    late = [c.late for c in found]
    false = float(np.mean([share > ALLOWED for share in late]))
    good = median(credited) >= CREDITED_LEAST and false <= FALSE_MOST
    print(
        f"{name:<56} {true:>7.1f} {median(credited):>9.3f} {min(credited):>7.3f} "
        f"{median(c.capacity / true for c in found):>9.3f} {np.mean(late):>7.2%} "
        f"{max(late):>7.2%} {false:>7.0%} {median(c.load_s for c in found):>7.0f}",
        flush=True,
    )
    return good


def tell_steadiness(runs: int) -> None:
    """How often single measurements pass, below and above the saturation."""
    shares = (0.9, 0.95, 1.02, 1.05, 1.1)
    print(f"{'SIMULATED: passes, by multiple of the saturation':<56}", *shares, sep="  ")
    for name, server in SERVERS.items():
        cells = []
        for share in shares:
            points = [
                SimulatedBench(server, luck=run).measure(share * server.saturation, run)
                for run in range(runs)
            ]
            in_time = [p for p in points if p.slo[0].value and p.slo[0].value <= p.slo[0].bound]
            cells.append(f"{sum(passes(p.slo) for p in points)}/{len(in_time)}")
        print(f"{name:<56}", *cells, sep="  ", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--server", help="only those whose name contains this")
    parser.add_argument("--soak", type=float, default=30.0, help="seconds; 0: none")
    parser.add_argument("--steadiness", action="store_true", help="how often loads pass")
    options = parser.parse_args()
    if options.steadiness:
        tell_steadiness(options.runs)
        return 0
    chosen: Callable[[str], bool] = lambda name: (options.server or "") in name  # noqa: E731
    heads = ("true", "credited", "least", "capacity", "late", "worst", "false", "load s")
    widths = (7, 9, 7, 9, 7, 7, 7, 7)
    print(f"{'SIMULATED, medians of runs (late: mean, worst)':<56}", end=" ")
    print(*(f"{h:>{w}}" for h, w in zip(heads, widths, strict=True)))
    shown = [(name, server) for name, server in SERVERS.items() if chosen(name)]
    good = [told(name, server, options.runs, options.soak) for name, server in shown]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
