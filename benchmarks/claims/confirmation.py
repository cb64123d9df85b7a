"""How often the confirmation decides correctly: A/A and A/B on a real server with a known truth.

The emulated accelerator's service times are parameters of its config, so a config that is faster by
a known share can be constructed. Each repetition confirms one config against another as `tune run`
does, on the real tritonserver with the real perf_analyzer, with arrivals of its own.

    python benchmarks/claims/confirmation.py --difference 0 --repeats 20   # A/A: never `confirmed`
    python benchmarks/claims/confirmation.py --difference 5 --repeats 20   # A/B: B is 5 % faster
    python benchmarks/claims/confirmation.py --difference -5 --repeats 20  # A/B: B is 5 % slower
    python benchmarks/claims/confirmation.py --simulated --difference 5    # a queue, no server

The difference is one of service times. Client, network and server cost both configs the same, so
the saturation differs a little less, and the capacity within a latency bound a little more.

``--simulated`` answers from a queue with those service times, each server 0.5 % off. In seconds it
shows how the rounds decide, and how long they would measure.

Each repetition appends one JSON line to --output at once. When called again with the same --output,
repetitions that have a result there are skipped, and those without one, which a disturbed machine
may have cost, are made again. Then follows the summary, and exit code 1 if a target of the project
is missed: A/A never confirmed; A/B right in 19 of 20; half of the repetitions within 180 s of
measuring, which leaves room for two interim analyses over rounds of three measurements per side in
the longest windows that a claim may need. A repetition without a result does not count as right.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import yaml
from claims import Server, SimulatedBench

from tuner.bench.protocol import Bench
from tuner.bench.timebook import Phase, TimeBook
from tuner.confirm.confirm import Confirmation, Outcome, Rules, confirm
from tuner.confirm.rounds import Entrant, Row
from tuner.confirm.soak import claim_window_s, most_claim_window_s
from tuner.errors import TrialError
from tuner.measurement.measurement import Rejected
from tuner.score.judge import slo_utilisation
from tuner.space.candidate import Candidate
from tuner.steps.events import Silent
from tuner.steps.job import Job, Request, prepare
from tuner.steps.serving import serving
from tuner.steps.session import set_up_bench
from tuner.steps.tools import find_programs

ROOT = Path(__file__).parents[2]
MODEL = "emulated-accelerator"
#: Milliseconds of the emulated accelerator, as in its config; all are scaled together.
COSTS = {
    "overlap_base_ms": 1.0,
    "overlap_per_request_ms": 0.05,
    "exclusive_base_ms": 4.0,
    "exclusive_per_request_ms": 0.2,
}
#: Both configs batch, so that the loads are those of a tuned server.
BATCHING = {
    "instance_group.count": 2,
    "max_batch_size": 8,
    "dynamic_batching": True,
    "dynamic_batching.max_queue_delay_microseconds": 500,
}
#: Requests per second near which their capacity lies.
LEVEL = 1240.0
#: Target for the seconds of measuring of a repetition, in the median.
MOST_MEASURING_S = 180.0
RIGHT_SHARE = 0.95
#: The device's part of a batch, plus what Triton and the client add: sustains about `LEVEL`.
QUEUE = Server(4.5e-3, 0.2e-3, most=8, p99_s=0.04)
#: By how much servers differ, as a share.
SERVER_NOISE = 0.005
NO_RESULT = ("failed", Outcome.NOT_MEASURED.name.lower())

Line = dict[str, object]


def candidate(faster: float) -> Candidate:
    """The config whose every service time is divided by 1 + ``faster``."""
    times = {f"parameters.{k}": f"{v / (1.0 + faster):.5f}" for k, v in COSTS.items()}
    return Candidate.of_models({MODEL: {**BATCHING, **times}})


CURRENT = candidate(0.0)


def spec_in(directory: Path, window_s: float) -> Path:
    """A spec over a copy of the model."""
    shutil.copytree(ROOT / "model_repository" / MODEL, directory / "models" / MODEL)
    spec = directory / "spec.yaml"
    spec.write_text(
        yaml.safe_dump(
            {
                "model": MODEL,
                "repository": "models",
                "workload": {"window": f"{window_s}s"},
                "slo": ["p99_latency <= 40ms", "error_rate <= 0%"],
                "space": {"instance_group.count": {"int": [1, 2]}},
            }
        )
    )
    return spec


@dataclass
class Rig:
    """A bench, how many seconds it has measured so far, and the measurements that did not count."""

    bench: Bench
    measured_s: Callable[[], float]
    rejected: list[Rejected] = field(default_factory=list)

    def stalled_percent(self) -> float:
        """The longest stalls in the measurements that did not count."""
        measured = [r.measurement for r in self.rejected if r.measurement is not None]
        return max((m.host.stalled_percent or 0.0 for m in measured), default=0.0)


class Told(Silent):
    """Reports the reason for a delay on the terminal."""

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


@contextmanager
def real(job: Job) -> Iterator[Rig]:
    """The real server and load generator."""
    book, rejected = TimeBook(), list[Rejected]()
    with (
        tempfile.TemporaryDirectory(prefix="tune-benchmark-") as logs,
        find_programs(job, dict(os.environ)) as programs,
        serving(job, programs, Path(logs), book) as served,
        set_up_bench(served, Told(), book, lambda: None, rejected.append) as bench,
    ):
        yield Rig(bench, lambda: book.seconds(Phase.MEASURING), rejected)


class Queues(SimulatedBench):
    """Servers of `QUEUE`, ``difference`` faster where they serve the other config."""

    difference: float = 0.0

    def deploy(self, candidate: Candidate, *, fresh: bool = False) -> None:
        self.deployed += 1
        luck = np.random.default_rng((self.luck, self.deployed)).standard_normal()
        faster = 0.0 if candidate == CURRENT else self.difference
        self.slower = (1.0 + SERVER_NOISE * luck) / (1.0 + faster)


@contextmanager
def simulated(difference: float, window_s: float, first: int) -> Iterator[Rig]:
    bench = Queues(QUEUE, luck=first, window_s=window_s)
    bench.difference = difference
    yield Rig(bench, lambda: bench.load_s)  # type: ignore[arg-type]


def rules_of(job: Job, seed: int, record: Callable[[Row], None]) -> Rules:
    """The rules of a run, with the windows that a claim needs by the rounds so far."""
    most_s = most_claim_window_s(job.spec.workload)
    return Rules(
        objective=job.spec.objective,
        levels=job.plan.levels,
        rounds=job.spec.confirm.rounds,
        min_gain=float(job.spec.confirm.min_gain),
        seed=seed,
        record=record,
        claim_window_s=lambda points: min(claim_window_s(points, job.spec.slos), most_s),
        soaked=True,
    )


def repeat(
    rig: Rig, job: Job, difference: float, numbers: Iterable[int], keep: Callable[[Line], None]
) -> None:
    """Confirms a config that is faster by ``difference`` against the unscaled one; one row each."""
    for number in numbers:
        row = _repetition(rig, job, difference, number)
        print(json.dumps(row), file=sys.stderr, flush=True)
        keep(row)


def _repetition(rig: Rig, job: Job, difference: float, number: int) -> Line:
    before, begin = rig.measured_s(), time.monotonic()
    rig.rejected.clear()
    rows: list[Row] = []
    rules = rules_of(job, 1000 * (number + 1), rows.append)
    # A search knows the capacities within a few percent, and so does this.
    finalist = Entrant(candidate(difference), LEVEL * (1.0 + difference))
    try:
        (result,) = confirm(rig.bench, Entrant(CURRENT, LEVEL), [finalist], rules)
        row = _row(number, result, rows)
    except TrialError as error:
        row = {"repetition": number, "outcome": "failed", "reason": error.message}
    row["measuring_s"] = round(rig.measured_s() - before, 1)
    row["wall_s"] = round(time.monotonic() - begin, 1)
    row["stalled_percent"] = round(rig.stalled_percent(), 1)
    return row


@dataclass(frozen=True)
class Kept:
    """The rows of one comparison in a file that may hold others; the last of a repetition counts.

    Attributes:
        path: None: they are not stored.
        what: The fields that identify a row of this comparison.
    """

    path: Path | None
    what: Line

    def rows(self) -> dict[int, Line]:
        """By number of the repetition, without a line that a kill cut short."""
        found = {}
        for text in self.path.read_text().splitlines() if self.path and self.path.exists() else ():
            with suppress(ValueError):
                row = json.loads(text)
                if self.what.items() <= row.items():
                    found[int(row["repetition"])] = row
        return found

    def append(self, row: Line) -> None:
        if self.path is None:
            return
        with self.path.open("a+b") as file:
            file.seek(max(file.tell() - 1, 0))
            cut = file.read(1) not in (b"", b"\n")
            line = json.dumps({**self.what, **row}) + "\n"
            file.write((("\n" if cut else "") + line).encode())
            file.flush()
            os.fsync(file.fileno())


def _row(number: int, result: Confirmation, rows: list[Row]) -> Line:
    return {
        "repetition": number,
        "outcome": result.outcome.name.lower(),
        "reason": result.reason,
        "rounds": len(result.points),
        "measurements": len(rows),
        "window_s": max(r.point.measurement.duration_s for r in rows),
        "stress": [
            (r.round, r.role.value, r.point.measurement.load.level, slo_utilisation(r.point.slo))
            for r in rows
        ],
        "ratio": None if result.ratio is None else asdict(result.ratio),
    }


def summary(rows: Sequence[Line], difference: float, min_gain: float) -> bool:
    """Prints the results; False when a target was missed."""
    wanted = Outcome.CONFIRMED.name.lower() if difference > min_gain else None
    confirmed = [r for r in rows if r["outcome"] == "confirmed"]
    failed = sum(r["outcome"] in NO_RESULT for r in rows)
    right = len(confirmed) if wanted else len(rows) - len(confirmed) - failed
    seconds = [float(str(r["measuring_s"])) for r in rows]
    wall_s = sum(float(str(r["wall_s"])) for r in rows)
    gains = sorted(r["ratio"]["estimate"] for r in rows if r.get("ratio"))  # type: ignore[index]
    print(f"difference {difference:+.0%}: right in {right} of {len(rows)}, {failed} gave no result")
    if gains:
        print(f"gain found: {gains[0]:.3f}, {median(gains):.3f}, {gains[-1]:.3f}")
    print(
        f"confirmed in {len(confirmed)}; {min(seconds):.0f}, {median(seconds):.0f}, "
        f"{max(seconds):.0f} s of measuring each; {wall_s / 60:.0f} minutes in all"
    )
    enough = right == len(rows) if difference == 0 else right >= RIGHT_SHARE * len(rows)
    return enough and median(seconds) <= MOST_MEASURING_S


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--difference", type=float, default=0.0, help="percent by which B is faster"
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first repetition")
    parser.add_argument("--window", type=float, default=1.8, help="seconds of a measurement")
    parser.add_argument("--simulated", action="store_true", help="a queue instead of a server")
    parser.add_argument(
        "--output", type=Path, help="append a JSON line per repetition; continue with what it holds"
    )
    options = parser.parse_args()
    difference = options.difference / 100.0
    kept = Kept(
        options.output,
        {
            "difference": difference,
            "spec_window_s": options.window,
            "simulated": options.simulated,
        },
    )
    numbers = range(options.first, options.first + options.repeats)
    rows = {n: r for n, r in kept.rows().items() if n in numbers and r["outcome"] not in NO_RESULT}

    def keep(row: Line) -> None:
        rows[int(str(row["repetition"]))] = row
        kept.append(row)

    with tempfile.TemporaryDirectory(prefix="tune-benchmark-") as directory:
        job = prepare(Request(spec=spec_in(Path(directory), options.window)))
        if left := [n for n in numbers if n not in rows]:
            queue = simulated(difference, options.window, left[0])
            with queue if options.simulated else real(job) as rig:
                repeat(rig, job, difference, left, keep)
    found = [rows[n] for n in numbers]
    return 0 if summary(found, difference, float(job.spec.confirm.min_gain)) else 1


if __name__ == "__main__":
    sys.exit(main())
