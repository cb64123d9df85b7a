"""Results of replays over recorded tables: raw curves, a figure, and a table that is printed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from recorded_bench import RecordedWorld

from tuner.space.space import Space

RESULTS = Path(__file__).parent / "results"
#: Numbers of measured configs that have a column in the table.
COLUMNS = (6, 12, 24)
#: The goals, over the seeds: median, and reached by 9 of 10.
MEDIAN_GOAL, TENTH_GOAL = 0.99, 0.97
#: Near the best, and a time at which a person wants to see something.
NEAR, EARLY_S = 0.95, 180.0
#: Colours that colour-blind people can tell apart (Okabe and Ito 2008).
COLOURS = {
    "gp": "#56b4e9",
    "tpe": "#0072b2",
    "tpe with designs": "#d55e00",
    "GPSampler with designs": "#f0e442",
    "random": "#999999",
    "grid": "#000000",
    "model-analyzer quick": "#009e73",
    "model-analyzer optuna": "#cc79a7",
    "model-analyzer brute": "#e69f00",
}
_LEGEND = (
    "The table shows the share of the best feasible goodput, without noise, that the search's best "
    "config has after n measured ones (the current config is among them): median over the seeds, "
    "and in brackets what 9 of 10 seeds reach. Written: the share of the config that a run ending "
    "there would write, after it has measured the finalists again. Proposals: time to choose the "
    "next config."
)
DASHES = {"random": (0, (4, 2)), "grid": (0, (1, 1)), "model-analyzer brute": (0, (5, 1, 1, 1))}


@dataclass(frozen=True)
class Step:
    """One measured config, and what the search held after it.

    Attributes:
        candidate: Key of the config.
        measurements: Loads it was measured at.
        share: True goodput of the best config so far over that of the table's best.
        choosing_s: Time the strategy took to propose it.
        at_s: Seconds of search at its end: deployments and measurements as they would have lasted,
            and the proposals.
    """

    candidate: str
    state: str
    measurements: int
    share: float
    choosing_s: float
    at_s: float = 0.0


@dataclass(frozen=True)
class Replay:
    """One search over a recorded table.

    Attributes:
        asked: Its budget of configs; it may use fewer.
        reason: Why it ended.
        notes: What it would have reported to the user on the way.
        written: By number of configs, the share of the config that a run ending there would write.
    """

    strategy: str
    seed: int
    asked: int
    reason: str
    notes: tuple[str, ...]
    steps: tuple[Step, ...]
    written: Mapping[str, float] = field(default_factory=dict)

    def shares(self) -> npt.NDArray[np.float64]:
        """Share after 1 to ``asked`` configs; a search that stopped keeps what it had."""
        shares = [s.share for s in self.steps]
        return np.array(shares + shares[-1:] * (self.asked - len(shares)))

    def seconds_to(self, share: float) -> float:
        """When it first held a config of this share; infinite where it never did."""
        return next((s.at_s for s in self.steps if s.share >= share), math.inf)

    def said(self) -> str:
        slowest = max(s.choosing_s for s in self.steps)
        return (
            f"{self.steps[-1].share:.3f} after {len(self.steps)} configs, "
            f"slowest proposal {slowest:.2f} s"
        )


def read(table: str) -> list[Replay]:
    """The stored raw curves; none when there is no file."""
    path = RESULTS / f"{table}.json"
    if not path.exists():
        return []
    runs = json.loads(path.read_text())["runs"]
    return [_replay(run) for run in runs]


def _replay(run: Mapping[str, Any]) -> Replay:
    steps = tuple(Step(**s) for s in run["steps"])
    return Replay(**{**run, "notes": tuple(run["notes"]), "steps": steps})


def write(table: str, replays: Sequence[Replay]) -> None:
    RESULTS.mkdir(exist_ok=True)
    runs = sorted(map(asdict, replays), key=lambda r: (r["strategy"], r["seed"]))
    lines = ",\n".join(json.dumps(run) for run in runs)
    (RESULTS / f"{table}.json").write_text(f'{{"table": "{table}", "runs": [\n{lines}\n]}}\n')


def report(
    table: str,
    replays: Sequence[Replay],
    machine: Mapping[str, Any],
    world: RecordedWorld,
    space: Space,
) -> str:
    """Draws the figure; returns the table."""
    by_strategy = {
        name: runs for name in COLOURS if (runs := [r for r in replays if r.strategy == name])
    }
    text = "\n".join(
        (
            f"# Replays over the {'' if 'emulated' in machine else 'recorded '}table of {table}",
            "",
            _facts(machine, world, space),
            "",
            *_rows(by_strategy),
            "",
            _LEGEND,
            "",
            *_times(by_strategy),
        )
    )
    RESULTS.mkdir(exist_ok=True)
    if by_strategy:
        _draw(table, by_strategy, len(world.curves))
    return text


def _facts(machine: Mapping[str, Any], world: RecordedWorld, space: Space) -> str:
    good = [world.goodput(key) for key in world.curves]
    near = sum(g >= MEDIAN_GOAL * world.best for g in good)
    current = world.goodput(space.canonical(space.current).key)
    return (
        f"{len(good)} configs, {_origin(machine)}. Best feasible goodput {world.best:.0f}/s, the "
        f"current config's {current:.0f}/s; "
        f"{near} configs are within 1 % of the best, {sum(g > 0 for g in good)} are feasible. "
        f"{_noise(world)} {world.changed}".rstrip()
    )


def _origin(machine: Mapping[str, Any]) -> str:
    if "emulated" in machine:
        return f"**emulated**, computed by `{machine['emulated']}`: nothing was measured"
    versions = machine["versions"]
    return (
        f"recorded on {machine['cores']} cores of {machine['cpu']} with tritonserver "
        f"{versions['tritonserver']} and perf_analyzer {versions['perf_analyzer']}"
    )


def _noise(world: RecordedWorld) -> str:
    if not world.noises:
        return "No config was recorded twice: the same load gets the same answer each time."
    return (
        f"Noise: {len(world.noises)} recordings of repeated configs, in windows "
        f"{'as long as those of a run' if world.like_a_run else 'of the table'}; up to the "
        f"capacity a p99 is {world.repeatability:.0%} off in the median, and its errors at "
        f"neighbouring loads correlate by {world.likeness:.2f}."
    )


def _rows(by_strategy: Mapping[str, Sequence[Replay]]) -> list[str]:
    most = max((r.asked for runs in by_strategy.values() for r in runs), default=0)
    columns = [n for n in COLUMNS if n <= most]
    heads = ["strategy", "seeds", *(f"after {n}" for n in columns)]
    heads += [f"written after {n}" for n in columns]
    heads += ["configs to 99 % (median)", "proposals: median, slowest"]
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, runs in by_strategy.items():
        shares = np.array([r.shares() for r in runs])
        cells = [_both(shares[:, n - 1]) if n <= shares.shape[1] else "not run" for n in columns]
        cells += [_written(runs, n) for n in columns]
        there = np.flatnonzero(np.median(shares, axis=0) >= MEDIAN_GOAL)
        reached = str(there[0] + 1) if there.size else f"not in {most}"
        times = [s.choosing_s for r in runs for s in r.steps[1:]]
        spent = f"{np.median(times):.3f} s, {max(times):.2f} s" if times else "none"
        rows.append(f"| {name} | {len(runs)} | {' | '.join(cells)} | {reached} | {spent} |")
    return rows


def _written(runs: Sequence[Replay], columns: int) -> str:
    known = [r.written[str(columns)] for r in runs if str(columns) in r.written]
    return _both(np.array(known)) if len(known) == len(runs) else "not run"


def _both(shares: npt.NDArray[np.float64]) -> str:
    return f"{np.median(shares):.1%} ({tenth(shares):.1%})"


def tenth(shares: npt.NDArray[np.float64]) -> float:
    """What 9 of 10 seeds reach: an observed value."""
    return float(np.quantile(shares, 0.1, axis=0, method="lower"))


def _times(by_strategy: Mapping[str, Sequence[Replay]]) -> list[str]:
    """How far the search was at a time, of replays that kept time."""
    lines = []
    for name, replays in by_strategy.items():
        timed = [r.seconds_to(NEAR) for r in replays if r.steps[-1].at_s]
        if timed:
            middle, most = np.quantile(timed, [0.5, 0.9], method="inverted_cdf")
            first = np.median([r.steps[0].at_s for r in replays])
            early = np.median([sum(s.at_s <= EARLY_S for s in r.steps) for r in replays])
            lines.append(
                f"{name} {middle:.0f} s ({most:.0f} s; its first config took {first:.0f} s, and "
                f"{early:g} were tried within {EARLY_S:.0f} s)"
            )
    if not lines:
        return []
    heading = (
        "Time of search until it held a config within 5 % of the best, median (9 of 10 seeds): "
    )
    return [f"{heading}{', '.join(lines)}.", ""]


def _draw(table: str, by_strategy: Mapping[str, Sequence[Replay]], configs: int) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(12, 4.6), sharey=True, layout="constrained")
    for name, runs in by_strategy.items():
        shares = 100.0 * np.array([r.shares() for r in runs])
        curves = np.median(shares, axis=0), np.quantile(shares, 0.1, axis=0, method="lower")
        for panel, curve in zip(panels, curves, strict=True):
            panel.plot(
                range(1, curve.size + 1),
                curve,
                color=COLOURS[name],
                linestyle=DASHES.get(name, "solid"),
                drawstyle="steps-post",
                linewidth=2.6 if name == "gp" else 1.6,
                label=f"{name} ({len(runs)} seeds)",
            )
    goals = (("median", MEDIAN_GOAL), ("9 of 10 seeds reach", TENTH_GOAL))
    for panel, (title, goal) in zip(panels, goals, strict=True):
        panel.axhline(100.0 * goal, color="#bbbbbb", linewidth=0.8)
        panel.text(1.0, 100.0 * goal, f" goal {goal:.0%}", color="#666666", va="bottom", size=8)
        panel.set_title(title)
        panel.set_xlabel(f"measured configs of {configs}")
        panel.set_ylim(0.0, 104.0)
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("share of the best feasible goodput (%)")
    lines, names = panels[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside right center", frameon=False)
    figure.suptitle(f"Recorded table of {table}: what a search holds after n configs")
    figure.savefig(RESULTS / f"{table}.png", dpi=130)
    plt.close(figure)
