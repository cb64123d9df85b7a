"""How often the confirmation errs, and how often it finds a gain, by simulation with known truth.

Runs the project's own confirmation (rounds, interim analyses, finalists, capacities) over configs
whose stress is a power of the load, (load / capacity)^8. Each server's capacity deviates from the
truth by chance, so that the logarithm of a round's ratio of two configs has the given standard
deviation. The arrivals of a round affect all
configs alike.

    python benchmarks/claims/confirmation_power.py   # the table of benchmarks/claims/README.md
    python benchmarks/claims/confirmation_power.py --gain 5 --noise 1 --finalists 2 --runs 2000

At a true gain of exactly `min_gain` nothing should be confirmed: at most 2.5 % of runs may confirm
any of the finalists. Exit code 1 if a target of the project is missed: those 2.5 %, and finding 95
% of gains of 5 % at a noise of 1 %.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from tuner.bench.evaluate import Sendable
from tuner.confirm.confirm import Confirmation, Outcome, Rules, confirm
from tuner.confirm.rounds import Entrant
from tuner.measurement.measurement import Arrivals, LatencySource, LoadPoint, Measurement
from tuner.score.capacity import LevelRange
from tuner.score.point import Point, judge_point
from tuner.space.candidate import Candidate
from tuner.spec.metrics import P99_LATENCY
from tuner.spec.slo import Objective, Slo

SLO = Slo(P99_LATENCY, 40_000.0, "p99_latency <= 40ms")
CAPACITY = 1000.0
STEEPNESS = 8.0
#: Effect of a round's arrivals on all capacities alike (standard deviation, as a share).
WEATHER = 0.04
#: The search knows the capacities within this (standard deviation, as a share).
SEARCHED = 0.03
MIN_GAIN, ROUNDS = 0.02, 3
MOST_WRONG, LEAST_FOUND = 0.025, 0.95
#: Gain, noise and finalists of the table, in percent.
TABLE = (
    *((2.0, noise, finalists) for noise in (1.0, 3.0) for finalists in (1, 2, 5)),
    *((gain, noise, n) for gain, noise in ((4.0, 1.0), (5.0, 1.0), (8.0, 2.0)) for n in (1, 2)),
    (0.0, 1.0, 2),
    (15.0, 2.0, 2),
)


class Simulated:
    """A bench of configs with known capacities."""

    def __init__(self, capacity: dict[Candidate, float], noise: float, run: int) -> None:
        self._capacity, self._noise = capacity, noise
        self._random = np.random.default_rng(run)
        self._serves = 0.0
        self.measurements = 0
        self.sendable = Sendable()

    def deploy(self, candidate: Candidate, *, fresh: bool = False) -> object:
        luck = self._random.normal(0.0, self._noise / math.sqrt(2.0))
        self._serves = self._capacity[candidate] * math.exp(luck)
        return None

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        self.measurements += 1
        weather = math.exp(np.random.default_rng(seed).normal(0.0, WEATHER))
        p99_us = SLO.bound * (level / (self._serves * weather)) ** STEEPNESS
        return judge_point((SLO,), _measurement(level, p99_us, seed))


def _measurement(level: float, p99_us: float, seed: int) -> Measurement:
    percentiles = dict.fromkeys(
        ("avg_latency_us", "p50_latency_us", "p90_latency_us", "p95_latency_us"), p99_us / 2
    )
    return Measurement(
        load=LoadPoint(Arrivals.POISSON, level),
        seed=seed,
        duration_s=3.0,
        completed_count=3000,
        failed_count=0,
        throughput_infer_per_s=level,
        p99_latency_us=p99_us,
        source=LatencySource.REQUESTS,
        **percentiles,
    )


@dataclass(frozen=True)
class Found:
    """Of many runs.

    Attributes:
        confirmed: Share of them in which a finalist was called better.
        covered: Share of all intervals that hold the true gain.
        rounds: On average.
        measurements: Likewise.
    """

    confirmed: float
    covered: float
    rounds: float
    measurements: float


def simulate(gain: float, noise: float, finalists: int, runs: int, first: int = 0) -> Found:
    """Confirmations of ``finalists`` configs, each better by ``gain`` (a share)."""
    every = [_run(gain, noise, finalists, first + n) for n in range(runs)]
    ratios = [r.ratio for results, _ in every for r in results if r.ratio is not None]
    return Found(
        confirmed=fmean(any(r.outcome is Outcome.CONFIRMED for r in got) for got, _ in every),
        covered=fmean(r.low <= 1.0 + gain <= r.high for r in ratios if r.low < r.high),
        rounds=fmean(max(len(r.own.rounds) for r in got) for got, _ in every),
        measurements=fmean(bench.measurements for _, bench in every),
    )


def _run(
    gain: float, noise: float, finalists: int, number: int
) -> tuple[list[Confirmation], Simulated]:
    counts = range(1, finalists + 2)
    configs = [Candidate.of_models({"m": {"instance_group.count": n}}) for n in counts]
    current, *others = configs
    capacity = dict.fromkeys(others, CAPACITY * (1.0 + gain)) | {current: CAPACITY}
    bench = Simulated(capacity, noise, number)
    luck = np.random.default_rng([1, number]).normal(0.0, SEARCHED, len(configs))
    entrants = [Entrant(c, capacity[c] * math.exp(x)) for c, x in zip(configs, luck, strict=True)]
    rules = Rules(
        objective=Objective.goodput(),
        levels=LevelRange(0.1, 1e6),
        rounds=ROUNDS,
        min_gain=MIN_GAIN,
        seed=1_000_000 + 100 * number,
        record=lambda _: None,
    )
    return confirm(bench, entrants[0], entrants[1:], rules), bench


def as_wanted(gain: float, noise: float, found: Found, runs: int) -> bool:
    """Whether the project's target is met, if there is one; gain and noise in percent.

    The error of so many runs is known within two standard deviations of a binomial share.
    """
    if gain <= 100.0 * MIN_GAIN:
        chance = 2.0 * math.sqrt(MOST_WRONG * (1.0 - MOST_WRONG) / runs)
        return found.confirmed <= MOST_WRONG + chance
    return found.confirmed >= LEAST_FOUND or not (gain == 5.0 and noise == 1.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gain", type=float, help="true gain of each finalist, percent")
    parser.add_argument(
        "--noise", type=float, default=1.0, help="noise of a round's ratio, percent"
    )
    parser.add_argument("--finalists", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1000)
    options: Any = parser.parse_args()
    asked = ((options.gain, options.noise, options.finalists),)
    good = True
    print("gain  noise  finalists  confirmed  intervals that hold  rounds  measurements")
    for gain, noise, finalists in TABLE if options.gain is None else asked:
        found = simulate(gain / 100.0, noise / 100.0, finalists, options.runs)
        good = good and as_wanted(gain, noise, found, options.runs)
        print(
            f"{gain:3.0f} %  {noise:3.0f} %  {finalists:9}  {found.confirmed:8.1%}  "
            f"{found.covered:18.1%}  {found.rounds:6.2f}  {found.measurements:12.1f}",
            flush=True,
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
