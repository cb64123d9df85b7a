"""How near the capacity search comes to a fine sweep, and what it costs, on a real server.

For a few configs of the emulated accelerator: the capacity as the search finds it (at most five
measurements, two more from far below), then a fine sweep around it, every level with several
seeds. The sweep's answer is where the stress (p99 over its bound) crosses one: the logarithm of the
stress, averaged over the seeds, is interpolated between neighbouring levels. (One line through the
whole sweep would cross too early, because the curve is convex.)

    python benchmarks/claims/capacity.py
    python benchmarks/claims/capacity.py --config 2 --config 3

Prints one row per config. Exit code 1 if one is more than 3 % from the sweep or took more than
five measurements.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rounds import BATCHING, MODEL, job_in

from tuner.meter.evaluate import MOST_PROBES, Race, evaluate, race
from tuner.meter.protocol import Bench
from tuner.meter.session import set_up_bench
from tuner.prepare.job import Job
from tuner.prepare.serving import serving
from tuner.prepare.timebook import TimeBook
from tuner.prepare.tools import find_programs
from tuner.progress.events import Silent
from tuner.score.capacity import Bracket, Probe
from tuner.score.next_load import TOLERANCE
from tuner.score.point import Point
from tuner.search.first_load import first_level
from tuner.space.candidate import Candidate

#: Name, config, and the load to beat in the race; None for the first trial of a run.
CONFIGS = (
    ("as it is in the repository", Candidate.of_models({MODEL: {"instance_group.count": 1}}), None),
    ("2 instances, delay 500 us", Candidate.of_models({MODEL: BATCHING}), 1000.0),
    (
        "3 instances, preferred [4], delay 300 us",
        Candidate.of_models(
            {
                MODEL: {
                    "instance_group.count": 3,
                    "dynamic_batching": True,
                    "dynamic_batching.preferred_batch_size": (4,),
                    "dynamic_batching.max_queue_delay_microseconds": 300,
                }
            }
        ),
        1400.0,
    ),
    (
        "1 instance, delay 0, from far below",
        Candidate.of_models({MODEL: {"instance_group.count": 1, "dynamic_batching": True}}),
        200.0,
    ),
)
#: Loads of the sweep, over the capacity found.
SWEEP = tuple(0.88 + 0.03 * i for i in range(9))
SEEDS = 3


def searched(bench: Bench, job: Job, to_beat: float | None) -> tuple[Bracket, int]:
    """The capacity as a trial of `tune run` finds it, and how many measurements it took."""
    seeds = iter(range(1, 100))

    def measure(level: float) -> Point:
        return bench.measure(level, next(seeds))

    if to_beat is None:
        start = first_level(bench, job.plan, next(seeds)).level
        evaluation = evaluate(measure, job.spec.objective, job.plan, start)
    else:
        raced = race(measure, job.plan, Race(to_beat))
        evaluation = (
            raced.evaluation(job.spec.objective)
            if raced.lost
            else evaluate(measure, job.spec.objective, job.plan, to_beat, known=raced.points)
        )
    probes = evaluation.points
    print("  ", " ".join(f"{p.level:.0f}:{p.slo_utilisation:.2f}" for p in probes), file=sys.stderr)
    return Bracket.of(probes), len(probes)


def swept(bench: Bench, job: Job, near: float) -> float:
    """The load at which the stress is 1."""
    probes: list[Probe] = []
    for seed in range(SEEDS):
        for share in SWEEP if seed % 2 == 0 else reversed(SWEEP):
            level = job.plan.levels.nearest(near * share)
            probes.append(bench.measure(level, 5000 + seed))
    return crossing_of(probes)


def crossing_of(probes: Sequence[Probe]) -> float:
    """Where the mean log stress, made non-decreasing over the levels, is 0."""
    stresses: dict[float, list[float]] = {}
    for probe in probes:
        if probe.slo_utilisation:
            stresses.setdefault(probe.level, []).append(math.log(probe.slo_utilisation))
    levels = sorted(stresses)
    means = np.maximum.accumulate([np.mean(stresses[level]) for level in levels])
    if not means[0] <= 0.0 <= means[-1]:
        raise SystemExit("the sweep does not contain the capacity: it is more than 12 % off")
    return math.exp(float(np.interp(0.0, means, np.log(levels))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--config", type=int, action="append", choices=range(len(CONFIGS)), help="default: all"
    )
    options = parser.parse_args()
    chosen = options.config or range(len(CONFIGS))
    good, book = True, TimeBook()
    with tempfile.TemporaryDirectory(prefix="tune-benchmark-") as directory:
        job = job_in(Path(directory))
        with (
            find_programs(job, dict(os.environ)) as programs,
            serving(job, programs, Path(directory), book) as served,
            set_up_bench(served, Silent(), book, lambda: None) as bench,
        ):
            print(f"{'config':<42} {'found':>8} {'sweep':>8} {'off':>7} {'measurements':>13}")
            for name, candidate, to_beat in (CONFIGS[i] for i in chosen):
                bench.deploy(candidate, fresh=True)
                bracket, count = searched(bench, job, to_beat)
                capacity_per_s = bracket.capacity() or 0.0
                sweep = swept(bench, job, capacity_per_s)
                off = capacity_per_s / sweep - 1.0
                good &= abs(off) <= TOLERANCE and count <= MOST_PROBES
                print(
                    f"{name:<42} {capacity_per_s:>8.1f} {sweep:>8.1f} {off:>+7.1%} {count:>13}",
                    flush=True,
                )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
