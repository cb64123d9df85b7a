"""Whether the rounds of `tune run` decide rightly on a real server, where the truth is known.

The emulated accelerator's service times are parameters of its config, so a config that is faster by
a known share can be made. Each repetition compares it with the config as it is, as a proof does,
under arrivals of its own. Client, network and server cost both the same, so capacities within the
latency SLO differ by a little more or less than service times do.

    python benchmarks/claims/rounds.py --faster 0 --repeats 20  # the same: never `better`
    python benchmarks/claims/rounds.py --faster 5 --repeats 20  # 5 % faster: `better`

Prints one line of JSON for each repetition, and then how many were called better.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from tuner.measurement.measurement import Stage
from tuner.meter.session import set_up_bench
from tuner.prepare.job import Job, Request, prepare
from tuner.prepare.serving import serving
from tuner.prepare.timebook import TimeBook
from tuner.prepare.tools import find_programs
from tuner.progress.events import Silent
from tuner.proof.entrants import Entrant, ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.proof.rounds import run_rounds
from tuner.space.candidate import Candidate

MODEL = "emulated-accelerator"
SPEC = f"""\
model: {MODEL}
repository: models
slo: [p99_latency <= 40ms, error_rate <= 0%]
space: {{instance_group.count: {{int: [1, 2]}}}}
"""
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
#: Requests per second near which their capacity lies: a search knows it within a few percent.
LEVEL = 1240.0


def candidate(faster: float) -> Candidate:
    """The config whose every service time is divided by 1 + ``faster``."""
    times = {f"parameters.{k}": f"{v / (1.0 + faster):.5f}" for k, v in COSTS.items()}
    return Candidate.of_models({MODEL: {**BATCHING, **times}})


def job_in(directory: Path) -> Job:
    """A spec over a copy of the model."""
    root = Path(__file__).parents[2]
    shutil.copytree(root / "model_repository" / MODEL, directory / "models" / MODEL)
    spec = directory / "spec.yaml"
    spec.write_text(SPEC)
    return prepare(Request(spec=spec))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faster", type=float, default=0.0, help="percent; 0: the same config")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first repetition")
    options = parser.parse_args()
    faster = options.faster / 100.0
    now, other = (Entrant(candidate(f), LEVEL * (1.0 + f)) for f in (0.0, faster))
    better = 0
    with tempfile.TemporaryDirectory(prefix="tune-benchmark-") as made:
        job, book = job_in(Path(made)), TimeBook()
        with (
            find_programs(job, dict(os.environ)) as programs,
            serving(job, programs, Path(made), book) as served,
            set_up_bench(served, Silent(), book, lambda: None) as bench,
        ):
            bench.enter(Stage.CONFIRMATION)
            for number in range(options.first, options.first + options.repeats):
                begun, seed = time.monotonic(), 1000 * (number + 1)
                spec, measured = job.spec, MeasuredOnce(bench)
                rules = ProofRules(spec.objective, spec.slos, job.plan, spec.confirm, seed)
                race = run_rounds(measured, now, [other], rules, lambda: False, lambda *_: None)
                better += bool(race.better)
                facts = {
                    "repetition": number,
                    "better": bool(race.better),
                    "no_gain": race.no_gain,
                    "left": race.finalists[0].left,
                    "rounds": len(race.current.rounds),
                    "ratio": [asdict(ratio) for ratio in race.ratios.values()],
                    "seconds": round(time.monotonic() - begun, 1),
                }
                print(json.dumps(facts), flush=True)
    print(f"{options.faster:g} % faster: called better in {better} of {options.repeats}")


if __name__ == "__main__":
    main()
