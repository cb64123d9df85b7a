"""Whether the twin's network of schedulers fits the measurements of several models together.

    python benchmarks/twin_on_grid.py pair
    python benchmarks/twin_on_grid.py chain --fitted 12 --seed 1

Fitted to the cells of a measured grid that a search would measure first (the current config and its
designs) and to some more, drawn by the seed; then every other cell's capacity is simulated and
compared with the measured one. The repeatability of a cell is in the grid itself (``again``).
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import recorded_table as tables
from recorded_bench import RecordedWorld
from recorded_table import Recording
from replay import Ground, world_of
from scipy.stats import spearmanr

from tuner.score.point import judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.search.strategies.designs import designs
from tuner.search.strategies.twin.fitting import in_words
from tuner.space.space import Space
from tuner.steps.job import Job
from tuner.twin.capacity import Requirement, capacity_of
from tuner.twin.fitting import Twin, fit
from tuner.twin.model import Unmodelled
from tuner.twin.setting import setting_of, with_measured


@dataclass(frozen=True)
class Agreement:
    """The result for the configs that the twin was not fitted to.

    Attributes:
        off: Median of the absolute error of the capacity, as a share.
        order: Spearman's rank correlation of the capacities.
        best: Measured capacity of the one that it considers best, as a share of the best.
    """

    configs: int
    off: float
    order: float
    best: float

    def __str__(self) -> str:
        return (
            f"capacity of {self.configs} other configs: {self.off:.1%} off in the median, "
            f"Spearman {self.order:.3f}; the one it takes for the best reaches {self.best:.1%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table")
    parser.add_argument("--fitted", type=int, default=8, help="cells")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    job, world = world_of(Ground(args.table))
    firsts = tables.read_table(args.table).firsts()
    chosen = chosen_cells(job.space, {key: firsts[key] for key in world.curves}, args)
    begin = time.perf_counter()
    found = fitted(job, chosen)
    print(f"{len(chosen)} of {len(world.curves)} cells, {time.perf_counter() - begin:.0f} s")
    print(in_words(found))
    if isinstance(found, Twin):
        print(*found.costs.services, found.costs.way, sep="\n")
        print(agreement(job, world, found, [r.candidate.key for r in chosen]))


def chosen_cells(
    space: Space, firsts: dict[str, Recording], args: argparse.Namespace
) -> list[Recording]:
    """Those at the beginning of a search, and others by chance."""
    begin = [space.canonical(c).key for c in (space.current, *designs(space))]
    others = sorted(firsts.keys() - begin)
    random.Random(args.seed).shuffle(others)
    return [firsts[key] for key in [*begin, *others][: args.fitted]]


def fitted(job: Job, cells: Sequence[Recording]) -> Twin | Unmodelled:
    trials = []
    for number, cell in enumerate(cells):
        points = tuple(judge_point(job.spec.slos, p) for p in cell.points)
        score = score_points(job.spec.objective, points)
        trials.append(Trial(number, cell.candidate, TrialState.MEASURED, points, score))
    return fit(trials, with_measured(setting_of(job.space, job.spec), trials))


def agreement(job: Job, world: RecordedWorld, twin: Twin, known: Sequence[str]) -> Agreement:
    """Simulated and measured capacities of the cells that are not ``known``."""
    asked = Requirement(job.spec.slos, job.plan.arrivals, job.plan.levels)
    measured, simulated = [], []
    for candidate in job.space.enumerate():
        network = twin.setting.network(candidate)
        capacity = world.goodput(candidate.key)
        if candidate.key in known or not capacity or isinstance(network, Unmodelled):
            continue
        found = capacity_of(twin.setting, twin.costs, network, asked, near=capacity)
        measured.append(capacity)
        simulated.append(max(found, 1e-3))
    off = np.abs(np.array(simulated) / np.array(measured) - 1.0)
    return Agreement(
        len(measured),
        float(np.median(off)),
        float(spearmanr(measured, simulated).statistic),
        measured[int(np.argmax(simulated))] / max(measured),
    )


if __name__ == "__main__":
    main()
