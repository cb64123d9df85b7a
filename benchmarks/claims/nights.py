"""How often `tune check` decides correctly, night after night: on a real server with a known truth.

    python benchmarks/claims/nights.py DIRECTORY --nights 20  # unchanged: no regression
    python benchmarks/claims/nights.py DIRECTORY --nights 20 --loss 8  # serves less: a regression
    python benchmarks/claims/nights.py --simulate 2000  # the table in docs

The model is the emulated accelerator, whose service times are parameters of its config. The first
call accepts the result of `tune check --update-baseline` for a batching config. Each night is a
separate `tune check`, as a nightly job starts it, of that config or of one slowed down so that it
serves ``--loss`` percent less. Nights are kept in DIRECTORY, one JSON line each; when called again
with it, the nights that it holds are skipped. Unchanged nights join the accepted result as on days
of their own, so call it without ``--loss`` first: the first ones may be inconclusive.

Then follows the summary, and exit code 1 if a target of the project is missed: of unchanged nights
none is a regression and at most one is inconclusive; with a loss, 19 of 20 are regressions. A night
that is inconclusive while the hypervisor or other processes took CPU counts like any other.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
from confirmation import MODEL, Kept, candidate, spec_in

from tuner.confirm.regression import (
    MOST,
    Change,
    change_of,
    loss_found,
    over_nights,
    shows_no_change,
)
from tuner.modelconfig.base import Base
from tuner.modelconfig.edit import edit
from tuner.modelconfig.message import parse
from tuner.programs.check.rounds import LOOKS
from tuner.run.checks import CHECK
from tuner.run.status import CheckStatus
from tuner.score.ratio import mean_with_interval

#: Of 20 unchanged nights, how many may be inconclusive; and in how many a loss must be found.
MOST_INCONCLUSIVE_SHARE, FOUND_SHARE = 0.05, 0.95
#: Seconds of a measurement: the default of a spec.
WINDOW_S = 3.0
NIGHTS = "nights.jsonl"

#: Of the simulation: standard deviations of nights and of rounds, losses, limits, and
#: `check.rounds`.
NIGHTS_CV, ROUNDS_CV = (0.0, 0.015, 0.03, 0.05), (0.02, 0.04)
LOSSES = (0.0, 0.05, 0.08, 0.15)
WARN, FAIL, ROUNDS = 0.03, 0.05, 3


@dataclass(frozen=True)
class Night:
    """How one night ended.

    Attributes:
        loss_percent: By how much less the config served than when it was accepted.
        status: Value of a `CheckStatus`.
        ratio: Now over what was accepted, with its interval; None: not compared.
        disturbed: The check reports that something else took CPU meanwhile.
    """

    repetition: int
    loss_percent: float
    status: str
    ratio: dict[str, float] | None
    seconds: float
    disturbed: bool

    def text(self) -> str:
        """One line for people."""
        ratio = self.ratio
        found = "" if ratio is None else f", {ratio['estimate']:.3f} of what was accepted"
        disturbed = ", disturbed" if self.disturbed else ""
        return f"night {self.repetition}: {self.status}{found}, {self.seconds:.0f} s{disturbed}"


def tune(arguments: Sequence[str]) -> int:
    """Runs the product in a process of its own; returns its exit code."""
    program = str(Path(sys.executable).with_name("tune"))
    return subprocess.run([program, *arguments], check=False).returncode


def accept(directory: Path) -> None:
    """Creates model, spec and an accepted result, unless the directory has them.

    Raises:
        SystemExit: The config could not be accepted.
    """
    spec = directory / "spec.yaml"
    if not spec.exists():
        spec_in(directory, WINDOW_S)
    if not list((directory / "results").glob("baselines/*.json")):
        serve(directory, 0.0)
        if code := tune([*arguments(directory), "--update-baseline"]):
            raise SystemExit(f"nothing was accepted: tune check ended with {code}")


def serve(directory: Path, loss_percent: float) -> None:
    """Makes the config in the repository serve this much less than the accepted one."""
    file = directory / "models" / MODEL / "config.pbtxt"
    text = file.read_text()
    wanted = candidate(-loss_percent / 100.0).of(MODEL)
    file.write_text(edit(text, Base.of_file(parse(text)).changes(wanted)))


def arguments(directory: Path) -> list[str]:
    """Those of a check."""
    output = str(directory / "results")
    return ["check", str(directory / "spec.yaml"), "--output", output, "--quiet"]


def night(directory: Path, number: int, loss_percent: float) -> Night:
    """One check of the config that serves this much less."""
    serve(directory, loss_percent)
    for path in (directory / "results").glob("baselines/*.json"):  # as if nights were days apart
        kept = json.loads(path.read_text()) | {"accepted_at": "2000-01-01"}
        kept["later"] = {f"2000-01-{n:02}": r for n, r in enumerate(kept["later"].values(), 2)}
        path.write_text(json.dumps(kept))
    before = set(directory.glob(f"results/*/{CHECK}"))
    code = tune(arguments(directory))
    (found,) = set(directory.glob(f"results/*/{CHECK}")) - before
    facts = json.loads(found.read_text())
    if code != facts["exit_code"]:
        raise SystemExit(f"{found}: tune check ended with {code}, not as it says")
    return Night(
        number,
        loss_percent,
        facts["status"],
        facts["ratio"],
        round(facts["seconds"], 1),
        any(reason.startswith("Disturbed") for reason in facts["reasons"]),
    )


def summary(nights: Sequence[Night], loss_percent: float) -> bool:
    """Prints the results; False when a target was missed."""
    count = Counter(CheckStatus(n.status) for n in nights)
    seconds = [n.seconds for n in nights]
    ratios = sorted(n.ratio["estimate"] for n in nights if n.ratio is not None)
    print(f"nights: {len(nights)}, of a config that serves {loss_percent:g} % less")
    print("  " + ", ".join(f"{status.value} {n}" for status, n in count.most_common()))
    if ratios:
        print(f"  of what was accepted: {ratios[0]:.3f}, {median(ratios):.3f}, {ratios[-1]:.3f}")
    print(f"  seconds: {min(seconds):.0f}, {median(seconds):.0f}, {max(seconds):.0f}")
    print(f"  disturbed: {sum(n.disturbed for n in nights)}")
    if loss_percent:
        return count[CheckStatus.REGRESSION] >= FOUND_SHARE * len(nights)
    good = count[CheckStatus.FINE] + count[CheckStatus.WORSE]
    says_nothing = count[CheckStatus.INCONCLUSIVE]
    return good + says_nothing == len(nights) and says_nothing <= max(
        1, MOST_INCONCLUSIVE_SHARE * len(nights)
    )


@dataclass
class SimulatedNights:
    """A machine on which a config is accepted and then checked; all values are logarithms."""

    random: np.random.Generator
    nights_cv: float
    rounds_cv: float

    def __post_init__(self) -> None:
        self.accepted = self.night()[: 2 * ROUNDS]
        self.ratios = [1.0]

    def night(self) -> np.ndarray:
        """As many rounds as a check may take."""
        rounds = self.random.normal(0.0, self.rounds_cv, LOOKS[-1] * ROUNDS)
        return self.random.normal(0.0, self.nights_cv) + rounds

    def check(self, loss: float = 0.0, *, join: bool = False) -> tuple[Change, float]:
        """What a check finds, and the loss that it would find in four nights of five."""
        now, count = self.night() + np.log1p(-loss), self.accepted.size
        for done in (times * ROUNDS for times in LOOKS):
            folded = [now[:done][i::count].mean() for i in range(min(count, done))]
            pairs = np.exp(folded - self.accepted[: len(folded)])
            tonight, freedom = mean_with_interval(list(pairs)), len(pairs) - 1
            ratio = over_nights(tonight, freedom, self.ratios)
            if change_of(ratio, WARN, FAIL) is not Change.INCONCLUSIVE:
                break
        if join and len(self.ratios) < MOST and shows_no_change(ratio, WARN):
            self.ratios.append(tonight.estimate)
        return change_of(ratio, WARN, FAIL), loss_found(ratio, WARN)


def simulate(runs: int) -> None:
    """Prints what checks find, on the first night, on the third, and once enough nights joined."""
    print("| nights | rounds | known | regression | fine | 5 % fine | 8 % | 15 % | 4 of 5 |")
    for nights_cv in NIGHTS_CV:
        for rounds_cv, earlier in [(cv, n) for cv in ROUNDS_CV for n in (0, 2, 2 * MOST)]:
            found: dict[float, list[Change]] = {loss: [] for loss in LOSSES}
            known, findable = [], []
            for run in range(runs):
                place = SimulatedNights(np.random.default_rng(run), nights_cv, rounds_cv)
                for _ in range(earlier):
                    place.check(join=True)
                known.append(len(place.ratios))
                for loss in LOSSES:
                    change, reach = place.check(loss)
                    found[loss].append(change)
                findable.append(reach)
            unchanged, five, *lost = found.values()
            shown = [
                unchanged.count(Change.REGRESSION),
                unchanged.count(Change.FINE),
                five.count(Change.FINE),
                *(changes.count(Change.REGRESSION) for changes in lost),
            ]
            cells = [f"{nights_cv:.1%}", f"{rounds_cv:.0%}", f"{np.mean(known):.1f}"]
            cells += [f"{count / runs:.1%}" for count in shown] + [f"{median(findable):.0%}"]
            print("| " + " | ".join(cells) + " |", flush=True)


def main() -> int:
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
        return 0
    directory: Path = options.directory or parser.error("which directory?")
    directory.mkdir(parents=True, exist_ok=True)
    accept(directory)
    kept = Kept(directory / NIGHTS, {"loss_percent": options.loss})
    nights = {n: Night(**row) for n, row in kept.rows().items()}
    for number in range(options.nights):
        if number in nights:
            continue
        nights[number] = night(directory, number, options.loss)
        print(nights[number].text(), file=sys.stderr, flush=True)
        kept.append(asdict(nights[number]))
    found = [nights[n] for n in range(options.nights)]
    return 0 if summary(found, options.loss) else 1


if __name__ == "__main__":
    sys.exit(main())
