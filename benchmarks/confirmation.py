"""How often the confirmation decides rightly: A/A and A/B on a real server with a known truth.

The emulated accelerator's times are parameters of its config, so a config that is faster by a
known share can be made by construction. Each repetition confirms one config against another as
`tune run` does, on the real tritonserver with the real perf_analyzer, with arrivals of its own.

    python benchmarks/confirmation.py --difference 0 --repeats 20      # A/A: never `confirmed`
    python benchmarks/confirmation.py --difference 5 --repeats 20      # A/B: B is 5 % faster
    python benchmarks/confirmation.py --difference -5 --repeats 20     # A/B: B is 5 % slower

The difference is one of service times; what both have in common (client, network, server) makes
the saturation differ a little less, and the capacity within a latency a little more.

One JSON line a repetition goes to --output; the summary, and exit code 1 where a figure of the
project is missed (A/A never confirmed; A/B right in 19 of 20; each within 90 s of measuring).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from tuner.confirm.confirm import Confirmation, Outcome, Row, Rules, confirm
from tuner.confirm.rounds import Entrant
from tuner.run.timebook import Phase, TimeBook
from tuner.score.judge import stress
from tuner.space.candidate import Candidate
from tuner.steps.events import Silent
from tuner.steps.job import Job, Request, prepare
from tuner.steps.programs import installed
from tuner.steps.rig import set_up_bench
from tuner.steps.serving import serving

ROOT = Path(__file__).parents[1]
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
MOST_MEASURING_S = 90.0
RIGHT_SHARE = 0.95


def candidate(faster: float) -> Candidate:
    """The config whose every service time is divided by 1 + ``faster``."""
    times = {f"parameters.{k}": f"{v / (1.0 + faster):.5f}" for k, v in COSTS.items()}
    return Candidate({**BATCHING, **times})


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


def repeat(job: Job, difference: float, first: int, repeats: int) -> list[dict[str, object]]:
    """Confirms a config that is faster by ``difference`` against itself unscaled; a row each."""
    other = candidate(difference)
    results = []
    book = TimeBook()
    with (
        tempfile.TemporaryDirectory(prefix="tune-benchmark-") as logs,
        installed(job, dict(os.environ)) as programs,
        serving(job, programs, Path(logs), book) as served,
        set_up_bench(served, Silent(), book, lambda: None) as bench,
    ):
        for number in range(first, first + repeats):
            before = book.seconds(Phase.MEASURING)
            rows: list[Row] = []
            rules = Rules(
                objective=job.spec.objective,
                levels=job.plan.levels,
                rounds=job.spec.confirm.rounds,
                min_gain=float(job.spec.confirm.min_gain),
                seed=1000 * (number + 1),
                record=rows.append,
            )
            current = Entrant(candidate(0.0), LEVEL)
            # A search knows the capacities within a few percent, and so does this.
            finalist = Entrant(other, LEVEL * (1.0 + difference))
            (result,) = confirm(bench, current, [finalist], rules)
            measuring_s = book.seconds(Phase.MEASURING) - before
            results.append(_row(number, result, rows, measuring_s))
            print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    return results


def _row(
    number: int, result: Confirmation, rows: list[Row], measuring_s: float
) -> dict[str, object]:
    return {
        "repetition": number,
        "outcome": result.outcome.name.lower(),
        "reason": result.reason,
        "rounds": len(result.points),
        "measurements": len(rows),
        "measuring_s": round(measuring_s, 1),
        "stress": [
            (r.round, r.role.value, r.point.measurement.load.level, stress(r.point.slo))
            for r in rows
        ],
        "ratio": None if result.ratio is None else result.ratio.to_json(),
    }


def summary(rows: Sequence[dict[str, object]], difference: float, min_gain: float) -> bool:
    """Prints what was found; False when a figure was missed."""
    wanted = Outcome.CONFIRMED.name.lower() if difference > min_gain else None
    confirmed = [r for r in rows if r["outcome"] == "confirmed"]
    right = len(confirmed) if wanted else len(rows) - len(confirmed)
    slowest = max(float(str(r["measuring_s"])) for r in rows)
    print(f"difference {difference:+.0%}: right in {right} of {len(rows)}")
    print(f"confirmed in {len(confirmed)}; at most {slowest:.0f} s of measuring each")
    enough = right == len(rows) if difference == 0 else right >= RIGHT_SHARE * len(rows)
    return enough and slowest <= MOST_MEASURING_S


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--difference", type=float, default=0.0, help="percent by which B is faster"
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first repetition")
    parser.add_argument("--window", type=float, default=1.8, help="seconds of a measurement")
    parser.add_argument("--output", type=Path, help="append a JSON line a repetition")
    options = parser.parse_args()
    difference = options.difference / 100.0
    with tempfile.TemporaryDirectory(prefix="tune-benchmark-") as directory:
        job = prepare(Request(spec=spec_in(Path(directory), options.window)))
        rows = repeat(job, difference, options.first, options.repeats)
    if options.output:
        with options.output.open("a") as file:
            file.writelines(json.dumps({"difference": difference, **r}) + "\n" for r in rows)
    return 0 if summary(rows, difference, float(job.spec.confirm.min_gain)) else 1


if __name__ == "__main__":
    sys.exit(main())
