"""The quickstart by `tune run` and by Model Analyzer's quick search, in turn, on one machine.

    python benchmarks/beside_model_analyzer.py [--pairs 5] [--with TUNE]

Both search instances and batch sizes of the emulated accelerator for the highest throughput within
a p99 of 40 ms, with one tritonserver and one perf_analyzer; `tune run` searches batching too, under
Poisson arrivals, proves and writes. Prints a row for each run, and the medians. ``--with`` names
the command of another environment, which runs beside them: an earlier build, say.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import yaml

from tuner.machine.process import free_ports
from tuner.server.binaries import Installation, perf_analyzer, tritonserver

TOP = Path(__file__).parents[1]
MODEL = "emulated-accelerator"
LIMIT_S = 1800


@dataclass(frozen=True)
class Row:
    """How a search ended: requests a second that it names as its best, within the SLO."""

    tool: str
    wall_s: float
    ended: str
    throughput_per_s: float | None


def beside(command: str) -> Path:
    """A command of this environment."""
    return Path(sys.executable).parent / command


def by_tune(program: Path, tool: str, place: Path) -> Row:
    shutil.copytree(TOP / "search_spaces", place / "search_spaces")
    shutil.copytree(TOP / "model_repository", place / "model_repository")
    command = [program, "run", "search_spaces/quickstart.yaml"]
    begin_s = time.monotonic()
    subprocess.run(
        [*command, "--progress", "none"],
        cwd=place,
        capture_output=True,
        check=False,
        timeout=LIMIT_S,
    )
    wall_s = time.monotonic() - begin_s
    (path,) = (place / "results").glob("*/result.json")
    result = json.loads(path.read_text())
    credited = (result["winner"] or {}).get("credited_infer_per_s")
    return Row(tool, wall_s, result["status"], credited)


def by_model_analyzer(place: Path) -> Row:
    shutil.copytree(TOP / "model_repository" / MODEL, place / "models" / MODEL)
    with tritonserver(None, os.environ) as server, perf_analyzer(None, os.environ) as load:
        (place / "search.yaml").write_text(yaml.safe_dump(search_of(server, load, place)))
        program = beside("model-analyzer")
        begin_s = time.monotonic()
        with (place / "log").open("w") as log:
            done = subprocess.run(
                [program, "profile", "-f", "search.yaml"],
                cwd=place,
                stdout=log,
                stderr=log,
                check=False,
                timeout=LIMIT_S,
            )
        wall_s = time.monotonic() - begin_s
    if done.returncode:
        raise SystemExit((place / "log").read_text()[-2000:])
    with (place / "export/results/metrics-model-inference.csv").open() as file:
        rows = list(csv.DictReader(file))
    within = [
        float(r["Throughput (infer/sec)"]) for r in rows if r["Satisfies Constraints"] == "Yes"
    ]
    return Row("Model Analyzer, quick", wall_s, f"{len(rows)} configs", max(within, default=None))


def search_of(server: Installation, load: Installation, place: Path) -> dict[str, object]:
    """A search by Model Analyzer that ends on a machine without a GPU."""
    with free_ports(3) as (http, grpc, metrics):
        pass
    names = ("LD_LIBRARY_PATH", "PYTHONPATH", "PATH")
    # Model Analyzer gives these to perf_analyzer too.
    variables = {n: server.environment[n] for n in names if n in server.environment}
    paths = (i.environment.get("LD_LIBRARY_PATH") for i in (server, load))
    variables["LD_LIBRARY_PATH"] = ":".join(p for p in paths if p)
    flags = {
        "backend_directory": server.backend_directory,
        "cache_directory": server.cache_directory,
        **{f"{n}_address": "127.0.0.1" for n in ("http", "grpc", "metrics")},
    }
    return {
        "model_repository": str(place / "models"),
        "output_model_repository_path": str(place / "variants"),
        "override_output_model_repository": True,
        "checkpoint_directory": str(place / "checkpoints"),
        "export_path": str(place / "export"),
        "triton_launch_mode": "local",
        "triton_server_path": str(server.binary),
        "triton_http_endpoint": f"127.0.0.1:{http}",
        "triton_grpc_endpoint": f"127.0.0.1:{grpc}",
        "triton_metrics_url": f"http://127.0.0.1:{metrics}/metrics",
        "triton_server_flags": {name: str(value) for name, value in flags.items() if value},
        "triton_server_environment": variables,
        "perf_analyzer_path": str(load.binary),
        "run_config_search_mode": "quick",
        "run_config_search_max_instance_count": 4,
        "run_config_search_max_model_batch_size": 32,
        "constraints": {"perf_latency_p99": {"max": 40}},
        "profile_models": {MODEL: {"cpu_only": True}},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=5, help="runs of each tool")
    parser.add_argument("--with", dest="other", type=Path, help="another build's command")
    parser.add_argument("--without-model-analyzer", action="store_true", help="only runs of tune")
    chosen = parser.parse_args()
    rows = defaultdict(list)
    for _ in range(chosen.pairs):
        runs = [lambda place: by_tune(beside("tune"), "tune", place)]
        if chosen.other:
            runs.append(lambda place: by_tune(chosen.other, "tune, other build", place))
        if not chosen.without_model_analyzer:
            runs.append(by_model_analyzer)
        for run in runs:
            with tempfile.TemporaryDirectory() as directory:
                row = run(Path(directory).resolve())
            print(
                f"{row.tool:24} {row.wall_s:6.0f} s  {row.ended:12} {row.throughput_per_s}",
                flush=True,
            )
            rows[row.tool].append(row)
    for tool, ended in rows.items():
        known = [r.throughput_per_s for r in ended if r.throughput_per_s is not None]
        rate = f"{statistics.median(known):,.0f}/s" if known else "none"
        wall_s = statistics.median(r.wall_s for r in ended)
        print(f"median of {len(ended)}: {tool}: {wall_s:.0f} s, {rate}")


if __name__ == "__main__":
    main()
