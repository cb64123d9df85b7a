"""Records what the twin's accuracy is tested with: configs of an example model under load.

    python benchmarks/twin_record.py emulated-accelerator --seconds 90
    python benchmarks/twin_record.py tiny-bert --seconds 90

Each config is loaded by a closed loop of 32 first, then by Poisson arrivals at shares of what it
answered there. Goes on where it stopped, one line of JSON a config, until the time is over.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tuner.bench.bench import Bench
from tuner.load.generator import Window
from tuner.load.measurement import Arrivals, LoadPoint, Measurement
from tuner.run.timebook import TimeBook
from tuner.space.candidate import Candidate, FieldValue
from tuner.steps.events import Silent
from tuner.steps.job import Request, prepare
from tuner.steps.rig import Watch, installed, rigged

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
    return Candidate(fields)


#: The first six are those the twin is fitted to.
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
    parser.add_argument("--seconds", type=float, default=90.0)
    args = parser.parse_args()
    record(args.model, RECORDED / f"twin-{args.model}.jsonl", time.monotonic() + args.seconds)


def record(model: str, path: Path, stop_at: float) -> None:
    done = {line["candidate"] for line in map(json.loads, path.open())} if path.exists() else set()
    left = [c for c in CONFIGS if c.key not in done]
    with tempfile.TemporaryDirectory() as directory:
        spec = Path(directory) / "spec.yaml"
        spec.write_text(SPEC.format(model=model, repository=ROOT / "model_repository"))
        job = prepare(Request(spec=spec))
        watch = Watch(TimeBook(), Silent(), lambda: None)
        with (
            installed(job, os.environ) as programs,
            rigged(job, programs, Path(directory), watch) as bench,
            path.open("a") as file,
        ):
            host = (
                programs.host.to_json() if hasattr(programs.host, "to_json") else str(programs.host)
            )
            for candidate in left:
                if time.monotonic() > stop_at - 18.0:
                    return
                points = measured(bench, candidate)
                line = {
                    "candidate": candidate.key,
                    "fields": candidate.to_json(),
                    "host": host,
                    "versions": programs.versions(),
                    "points": [p.to_json() for p in points],
                }
                file.write(json.dumps(line) + "\n")
                file.flush()
                print(dict(candidate.fields))
                for p in points:
                    print(
                        "   ",
                        p.load,
                        f"{p.throughput_infer_per_s:.0f}/s",
                        p.p50_latency_us,
                        p.p99_latency_us,
                    )


def measured(bench: Bench, candidate: Candidate) -> list[Measurement]:
    bench.deploy(candidate)
    seed = CONFIGS.index(candidate) * 10 + 1
    closed = bench._put(CLOSED, WINDOW, seed)
    points = [closed]
    for number, share in enumerate(SHARES, start=1):
        load = LoadPoint(Arrivals.POISSON, float(f"{closed.throughput_infer_per_s * share:.3g}"))
        points.append(bench._put(load, WINDOW, seed + number))
    return points


if __name__ == "__main__":
    main()
