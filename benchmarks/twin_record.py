"""Records the data that tests the twin's accuracy: configs of an example model under load.

    python benchmarks/twin_record.py emulated-accelerator --seconds 280
    python benchmarks/twin_record.py tiny-bert --seconds 1200 --rounds 4

Each config is loaded by a closed loop of 32 first, then by Poisson arrivals at shares of what it
answered there. Further rounds measure all configs again, in another order, with other arrivals at
the loads of the first round; they separate the machine's noise from the twin's error. The script
continues where it stopped, with one line of JSON per config and round, until the time is over.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.bench.protocol import Bench
from tuner.bench.timebook import TimeBook
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.space.candidate import Candidate, FieldValue
from tuner.steps.events import Silent
from tuner.steps.job import Request, prepare
from tuner.steps.rig import set_up_bench
from tuner.steps.serving import serving
from tuner.steps.tools import find_programs

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "tests" / "cases" / "recorded"
CLOSED = LoadPoint(Arrivals.CLOSED, 32)
WINDOW = Window(duration_s=2.0, warmup_s=0.5, deadline_s=60.0, tail_s=0.3)
SHARES = (0.5, 0.75, 0.9)

SPEC = """
model: {model}
repository: {repository}
workload:
  arrivals: {{kind: poisson}}
  inputs: {{kind: random, unique: 2000, int_range: [0, 1]}}
slo: [p99_latency <= 100ms]
space:
  instance_group.count: {{int: [1, 4]}}
"""


def config(
    instances: int, batch: int, preferred: Sequence[int] = (), delay_us: int | None = None
) -> Candidate:
    """``delay_us`` None: no dynamic batching."""
    fields: dict[str, FieldValue] = {"instance_group.count": instances, "max_batch_size": batch}
    fields["dynamic_batching"] = None if delay_us is None else True
    if delay_us is not None:
        fields["dynamic_batching.preferred_batch_size"] = tuple(preferred) or None
        fields["dynamic_batching.max_queue_delay_microseconds"] = delay_us
    return Candidate.of_models({"": fields})


#: The twin is fitted to the first six.
CONFIGS = (
    config(1, 16),
    config(1, 16, delay_us=0),
    config(2, 32, delay_us=0),
    config(4, 8, delay_us=0),
    config(2, 16, (8,), 2000),
    config(3, 16, (4,), 0),
    config(2, 16),
    config(4, 16),
    config(1, 8, delay_us=0),
    config(1, 32, delay_us=4000),
    config(2, 16, delay_us=0),
    config(2, 8, (4,), 1000),
    config(3, 32, (8, 16), 4000),
    config(4, 16, (8,), 0),
    config(4, 32, delay_us=1000),
    config(1, 16, (4,), 0),
    config(3, 8, delay_us=500),
    config(2, 32, (16,), 8000),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=("emulated-accelerator", "tiny-bert"))
    parser.add_argument("--seconds", type=float, default=280.0)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    path = RECORDED / f"twin-{args.model}.jsonl"
    record(args.model, path, args.rounds, time.monotonic() + args.seconds)


def record(model: str, path: Path, rounds: int, stop_at: float) -> None:
    lines = list(map(json.loads, path.open())) if path.exists() else []
    done = {(line["round"], line["candidate"]) for line in lines}
    loads = {line["candidate"]: _loads(line["points"]) for line in lines if not line["round"]}
    left = [
        (number, c)
        for number in range(rounds)
        for c in _order(number)
        if (number, c.key) not in done
    ]
    with tempfile.TemporaryDirectory() as directory:
        spec = Path(directory) / "spec.yaml"
        spec.write_text(SPEC.format(model=model, repository=ROOT / "model_repository"))
        job = prepare(Request(spec=spec))
        book = TimeBook()
        with (
            find_programs(job, os.environ) as programs,
            serving(job, programs, Path(directory), book) as served,
            set_up_bench(served, Silent(), book, lambda: None) as bench,
            path.open("a") as file,
        ):
            host = (
                programs.host.to_json() if hasattr(programs.host, "to_json") else str(programs.host)
            )
            for number, candidate in left:
                if time.monotonic() > stop_at - 18.0:
                    return
                points = measured(bench, candidate, number, loads.get(candidate.key, ()))
                loads.setdefault(candidate.key, tuple(p.load for p in points[1:]))
                line = {
                    "round": number,
                    "candidate": candidate.key,
                    "fields": candidate.to_json(),
                    "host": host,
                    "versions": programs.versions(),
                    "points": [p.to_json() for p in points],
                }
                file.write(json.dumps(line) + "\n")
                file.flush()
                print(dict(candidate.of("")))
                for p in points:
                    print(
                        "   ",
                        p.load,
                        f"{p.throughput_infer_per_s:.0f}/s",
                        p.p50_latency_us,
                        p.p99_latency_us,
                    )


def _order(number: int) -> Sequence[Candidate]:
    return CONFIGS if number == 0 else random.Random(number).sample(CONFIGS, len(CONFIGS))


def _loads(points: Sequence[Any]) -> tuple[LoadPoint, ...]:
    return tuple(Measurement.from_json(p).load for p in points[1:])


def measured(
    bench: Bench, candidate: Candidate, number: int, loads: Sequence[LoadPoint]
) -> list[Measurement]:
    """``loads`` is empty in the first round, which finds them."""
    bench.deploy(candidate)
    seed = 1000 * number + CONFIGS.index(candidate) * 10 + 1
    closed = bench._put(CLOSED, WINDOW, seed)
    points = [closed]
    loads = loads or [_share(closed, share) for share in SHARES]
    for step, load in enumerate(loads, start=1):
        points.append(bench._put(load, WINDOW, seed + step))
    return points


def _share(closed: Measurement, share: float) -> LoadPoint:
    return LoadPoint(Arrivals.POISSON, float(f"{closed.throughput_infer_per_s * share:.3g}"))


if __name__ == "__main__":
    main()
