"""How often `tune check` decides correctly, night after night: on a real server with a known truth.

    python benchmarks/claims/nights.py DIRECTORY --nights 20  # unchanged: no regression
    python benchmarks/claims/nights.py DIRECTORY --nights 20 --loss 8  # serves less: a regression
    python benchmarks/claims/nights.py --simulate 1000  # the table in README.md

The model is the emulated accelerator, whose service times are parameters of its config. The first
call in an empty DIRECTORY accepts the result of `tune check --update-baseline` for a batching
config. Each night is a separate `tune check`, as a nightly job starts it, of that config or of one
slowed down so that it serves ``--loss`` percent less. Unchanged nights join the accepted result as
on days of their own, so call it without ``--loss`` first. One line is printed for each night, and
then how many ended in which way.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from tuner.check.nights import (
    MOST,
    change_of,
    detectable_loss,
    over_nights,
    shows_no_change,
)
from tuner.modelconfig.base import Base
from tuner.modelconfig.edit import edit
from tuner.modelconfig.message import parse
from tuner.proof.decide import look_after
from tuner.record.checks import CHECK
from tuner.record.status import CheckStatus
from tuner.score.ratio import mean_with_interval
from tuner.space.candidate import Candidate
from tuner.spec.model import Check

MODEL = "emulated-accelerator"
SPEC = f"""\
model: {MODEL}
repository: models
slo: [p99_latency <= 40ms, error_rate <= 0%]
space: {{instance_group.count: {{int: [1, 2]}}}}
"""
#: Milliseconds of the emulated accelerator; a loss scales all of them.
COSTS = {
    "overlap_base_ms": 1.0,
    "overlap_per_request_ms": 0.05,
    "exclusive_base_ms": 4.0,
    "exclusive_per_request_ms": 0.2,
}
BATCHING = {"instance_group.count": 2, "max_batch_size": 8, "dynamic_batching": True}

#: Of the simulation: standard deviations of nights and of rounds, losses, and the settings.
NIGHTS_CV, ROUNDS_CV = (0.0, 0.015, 0.03, 0.05), (0.02, 0.04)
LOSSES = (0.0, 0.05, 0.08, 0.15)
SET = Check()


def serve(directory: Path, loss_percent: float) -> None:
    """Makes the config in the repository serve this much less than the accepted one."""
    file, share = directory / "models" / MODEL / "config.pbtxt", 1.0 - loss_percent / 100.0
    costs = {f"parameters.{name}": f"{ms / share:.5f}" for name, ms in COSTS.items()}
    wanted = Candidate.of_models({MODEL: {**BATCHING, **costs}})
    text = file.read_text()
    file.write_text(edit(text, Base.of_file(parse(text)).changes(wanted.of(MODEL))))


def tune_check(directory: Path, *more: str) -> dict[str, object]:
    """One check in a process of its own; its `check.json`.

    Raises:
        SystemExit: It ended otherwise than that says.
    """
    before = set(directory.glob(f"results/*/{CHECK}"))
    program = str(Path(sys.executable).with_name("tune"))
    arguments = ["check", "spec.yaml", "--output", "results", "--quiet", *more]
    code = subprocess.run([program, *arguments], check=False, cwd=directory).returncode
    (record,) = set(directory.glob(f"results/*/{CHECK}")) - before
    facts: dict[str, object] = json.loads(record.read_text())
    if code != facts["exit_code"]:
        raise SystemExit(f"{record}: tune check ended with {code}, not as it says")
    return facts


def as_if_days_apart(directory: Path) -> None:
    """Lets a night of today join the accepted result once more."""
    for path in directory.glob("results/baselines/*[0-9a-f].json"):
        kept = json.loads(path.read_text()) | {"accepted_at": "2000-01-01"}
        kept["later"] = {f"2000-01-{n:02}": r for n, r in enumerate(kept["later"].values(), 2)}
        path.write_text(json.dumps(kept))


def measure(directory: Path, nights: int, loss_percent: float) -> None:
    """Checks night after night, and prints what each found."""
    if not (directory / "spec.yaml").exists():
        root = Path(__file__).parents[2]
        shutil.copytree(root / "model_repository" / MODEL, directory / "models" / MODEL)
        (directory / "spec.yaml").write_text(SPEC)
        serve(directory, 0.0)
        print(f"accepted: {tune_check(directory, '--update-baseline')['values']}", flush=True)
    serve(directory, loss_percent)
    ended: Counter[object] = Counter()
    for number in range(nights):
        as_if_days_apart(directory)
        facts = tune_check(directory)
        ended[facts["status"]] += 1
        print(
            f"night {number}: {facts['status']}, {facts['ratio']}, {facts['seconds']} s", flush=True
        )
    print(f"{loss_percent:g} % less: {dict(ended)}")


@dataclass
class SimulatedNights:
    """A machine on which a config is accepted and then checked; all values are logarithms."""

    random: np.random.Generator
    nights_cv: float
    rounds_cv: float

    def __post_init__(self) -> None:
        self.accepted = self.night()
        self.ratios = [1.0]

    def night(self) -> np.ndarray:
        """As many rounds as a check may take."""
        rounds = self.random.normal(0.0, self.rounds_cv, SET.rounds)
        return self.random.normal(0.0, self.nights_cv) + rounds

    def check(self, loss: float = 0.0, *, join: bool = False) -> tuple[CheckStatus, float]:
        """What a check finds, and the loss that it would find in four nights of five."""
        now = self.night() + np.log1p(-loss)
        for done in (n for n in range(SET.rounds + 1) if look_after(n, SET.rounds, 1)):
            tonight = mean_with_interval(list(np.exp(now - self.accepted)[:done]))
            ratio = over_nights(tonight, done - 1, self.ratios, float(SET.nights))
            change = change_of(ratio, SET.warn, SET.fail)
            if change is not CheckStatus.INCONCLUSIVE:
                break
        if join and len(self.ratios) < MOST and shows_no_change(ratio, SET.warn):
            self.ratios.append(tonight.estimate)
        return change, detectable_loss(ratio, SET.warn)


def simulate(runs: int) -> None:
    """Prints what checks find, on the first night, on the third, and once enough nights joined."""
    print("| nights | rounds | known | regression | fine | 5 % fine | 8 % | 15 % | 4 of 5 |")
    for nights_cv in NIGHTS_CV:
        for rounds_cv, earlier in [(cv, n) for cv in ROUNDS_CV for n in (0, 2, 2 * MOST)]:
            statuses: dict[float, list[CheckStatus]] = {loss: [] for loss in LOSSES}
            known, findable = [], []
            for run in range(runs):
                place = SimulatedNights(np.random.default_rng(run), nights_cv, rounds_cv)
                for _ in range(earlier):
                    place.check(join=True)
                known.append(len(place.ratios))
                for loss in LOSSES:
                    change, reach = place.check(loss)
                    statuses[loss].append(change)
                findable.append(reach)
            unchanged, five, *lost = statuses.values()
            counts = [
                unchanged.count(CheckStatus.REGRESSION),
                unchanged.count(CheckStatus.FINE),
                five.count(CheckStatus.FINE),
                *(changes.count(CheckStatus.REGRESSION) for changes in lost),
            ]
            cells = [f"{nights_cv:.1%}", f"{rounds_cv:.0%}", f"{np.mean(known):.1f}"]
            cells += [f"{count / runs:.1%}" for count in counts] + [f"{median(findable):.0%}"]
            print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, nargs="?", help="where nights are kept")
    parser.add_argument("--simulate", type=int, default=0, metavar="RUNS", help="no server at all")
    parser.add_argument("--nights", type=int, default=20)
    parser.add_argument(
        "--loss", type=float, default=0.0, help="percent by which the config serves less"
    )
    options = parser.parse_args()
    if options.simulate:
        simulate(options.simulate)
        return
    directory: Path = options.directory or parser.error("which directory?")
    directory.mkdir(parents=True, exist_ok=True)
    measure(directory, options.nights, options.loss)


if __name__ == "__main__":
    main()
