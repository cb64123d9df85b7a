"""How often `tune check` decides correctly, night after night: on a real server with a known truth.

    python benchmarks/claims/nights.py DIRECTORY --nights 20           # unchanged: no regression
    python benchmarks/claims/nights.py DIRECTORY --nights 20 --loss 8  # serves less: a regression

The model is the emulated accelerator, whose service times are parameters of its config. The first
call accepts the result of `tune check --update-baseline` for a batching config. Each night is a
separate `tune check`, as a nightly job starts it, of that config or of one slowed down so that it
serves ``--loss`` percent less. Nights are kept in DIRECTORY, one JSON line each; when called again
with it, the nights that it holds are skipped.

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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from confirmation import MODEL, Kept, candidate, spec_in

from tuner.modelconfig.base import Base
from tuner.modelconfig.edit import edit
from tuner.modelconfig.message import parse
from tuner.run.baseline import CHECK
from tuner.run.status import CheckStatus

#: Of 20 unchanged nights, how many may be inconclusive; and in how many a loss must be found.
MOST_INCONCLUSIVE_SHARE, FOUND_SHARE = 0.05, 0.95
#: Seconds of a measurement: the default of a spec.
WINDOW_S = 3.0
NIGHTS = "nights.jsonl"

#: Runs `tune` with arguments; returns its exit code.
Tune = Callable[[Sequence[str]], int]


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
    """Runs the product in a process of its own."""
    program = str(Path(sys.executable).with_name("tune"))
    return subprocess.run([program, *arguments], check=False).returncode


def accept(directory: Path, run: Tune) -> None:
    """Creates model, spec and an accepted result, unless the directory has them.

    Raises:
        SystemExit: The config could not be accepted.
    """
    spec = directory / "spec.yaml"
    if not spec.exists():
        spec_in(directory, WINDOW_S)
    if not list((directory / "results").glob("baselines/*.json")):
        serve(directory, 0.0)
        if code := run([*arguments(directory), "--update-baseline"]):
            raise SystemExit(f"nothing was accepted: tune check ended with {code}")


def serve(directory: Path, loss_percent: float) -> None:
    """Makes the config in the repository serve this much less than the accepted one."""
    file = directory / "models" / MODEL / "config.pbtxt"
    text = file.read_text()
    wanted = candidate(-loss_percent / 100.0).of("")
    file.write_text(edit(text, Base.of_file(parse(text)).changes(wanted)))


def arguments(directory: Path) -> list[str]:
    """Those of a check."""
    output = str(directory / "results")
    return ["check", str(directory / "spec.yaml"), "--output", output, "--quiet"]


def night(directory: Path, number: int, loss_percent: float, run: Tune) -> Night:
    """One check of the config that serves this much less."""
    serve(directory, loss_percent)
    before = set(directory.glob(f"results/*/{CHECK}"))
    code = run(arguments(directory))
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


def main(run: Tune = tune) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="where nights are kept")
    parser.add_argument("--nights", type=int, default=20)
    parser.add_argument(
        "--loss", type=float, default=0.0, help="percent by which the config serves less"
    )
    options = parser.parse_args()
    directory: Path = options.directory
    directory.mkdir(parents=True, exist_ok=True)
    accept(directory, run)
    kept = Kept(directory / NIGHTS, {"loss_percent": options.loss})
    nights = {n: Night(**row) for n, row in kept.rows().items()}
    for number in range(options.nights):
        if number in nights:
            continue
        nights[number] = night(directory, number, options.loss, run)
        print(nights[number].text(), file=sys.stderr, flush=True)
        kept.append(asdict(nights[number]))
    found = [nights[n] for n in range(options.nights)]
    return 0 if summary(found, options.loss) else 1


if __name__ == "__main__":
    sys.exit(main())
