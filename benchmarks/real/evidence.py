"""Tunes the real networks whole, and puts another client on what was written.

    python benchmarks/real/evidence.py OUTDIR --runs 3
    python benchmarks/real/evidence.py OUTDIR --page  # the table in README.md

OUTDIR is what `lay_out.py` made. Each run takes the drafted spec as it is, in a copy of the
repository. Where it wrote a config, perf_analyzer's own Poisson load then asks a server with that
config for the credited rate, for a minute. OUTDIR/evidence.jsonl gets a line for each run; the same
command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lay_out import TUNED, environment, tune

from tuner.load.perf_analyzer.input_file import write_inputs
from tuner.load.traffic.encoding import resolve
from tuner.load.traffic.inputs import DrawnInputs
from tuner.machine.cpus import share_cores
from tuner.machine.process import child
from tuner.server.binaries import perf_analyzer, tritonserver
from tuner.server.control import Control
from tuner.spec.load import load_spec
from tuner.spec.workload import RandomInputs
from tuner.triton.local import LocalLauncher

RESULTS = "evidence.jsonl"
#: Of a run that ended and may still have to be soaked.
DONE = "tuned.json"
LOAD_DEADLINE_S, WARM_UP_S, SOAK_S = 60.0, 6.0, 60.0
#: Different inputs of the soak: perf_analyzer reads all of them first.
INPUTS = 32


@dataclass(frozen=True)
class Soak:
    """What perf_analyzer saw of a config under the load that it was credited with."""

    throughput_per_s: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Tuned:
    """A run, and the soak of what it wrote.

    Attributes:
        ending: The run's status, or how `tune` ended without one.
        planned: What `tune plan` said of the time.
        before_per_s: The load that the config it found is credited with, where one is.
        credited_per_s: The same of the config that it left in the repository.
        p99_ms: Of that config, in its own soak where there was one.
    """

    model: str
    number: int
    ending: str
    minutes: float
    planned: str
    written: bool = False
    before_per_s: float | None = None
    credited_per_s: float | None = None
    p99_ms: float | None = None
    soak: Soak | None = None


def tune_completely(directory: Path, model: str, number: int) -> Tuned:
    """A run with its plan, in a directory of its own, which stays; the soak comes after."""
    place = place_of(directory, model, number)
    if (place / DONE).exists():
        return Tuned(**json.loads((place / DONE).read_text()))
    if place.exists():  # of a run that was stopped
        shutil.rmtree(place)
    shutil.copytree(directory / "models", place / "models")
    spec = str(shutil.copy(directory / f"{model}.yaml", place))
    variables = environment(directory)
    plan = subprocess.run(
        tune("plan", spec), check=True, env=variables, stdout=subprocess.PIPE, text=True
    )
    match = re.search(r"^time +(.+)$", plan.stdout, re.MULTILINE)
    assert match is not None, plan.stdout
    started = time.monotonic()
    command = tune("run", spec, "--seed", str(number), "--progress", "plain")
    done = subprocess.run(command, check=False, cwd=place, env=variables)
    if done.returncode == 130:
        raise SystemExit("stopped: the same command goes on")
    ended = f"exit {done.returncode}"
    tuned = Tuned(model, number, ended, (time.monotonic() - started) / 60.0, match[1])
    for file in place.glob("results/*/result.json"):
        tuned = credited(tuned, json.loads(file.read_text()))
    (place / DONE).write_text(json.dumps(asdict(tuned)))
    return tuned


def place_of(directory: Path, model: str, number: int) -> Path:
    return directory / "runs" / f"{model}-{number}"


def credited(tuned: Tuned, result: dict[str, Any]) -> Tuned:
    """What `result.json` says of the config that is in the repository now."""
    before, written = result["baseline"] or {}, bool(result["written"])
    now = result["winner"] if written else before
    p99_us = now.get("p99_latency_us")
    return replace(
        tuned,
        ending=result["status"],
        written=written,
        before_per_s=before.get("credited_infer_per_s"),
        credited_per_s=now.get("credited_infer_per_s"),
        p99_ms=None if p99_us is None else p99_us / 1e3,
    )


def soak(directory: Path, tuned: Tuned) -> Soak | None:
    """What a run wrote, if it did, on a server that is started as its users start it."""
    if not tuned.written or tuned.credited_per_s is None:
        return None
    place, model = place_of(directory, tuned.model, tuned.number), tuned.model
    spec = load_spec(place / f"{model}.yaml").spec
    (stream,) = spec.streams.values()
    inputs = stream.inputs
    assert isinstance(inputs, RandomInputs)  # as drafted
    cores = share_cores(spec.server.cpus, spec.workload.cpus)
    with (
        tempfile.TemporaryDirectory() as temporary,
        tritonserver(None, environment(directory)) as installation,
        perf_analyzer(None, os.environ) as program,
        LocalLauncher(replace(installation, cpus=cores.server), place / "models").launch(
            [], place / "soak-server.log"
        ) as server,
        Control(server.endpoints) as control,
    ):
        control.load(model, None, LOAD_DEADLINE_S)
        tensors = resolve(model, control.running_config(model), inputs.shapes)
        report, sent = Path(temporary) / "report.csv", Path(temporary) / "inputs.json"
        write_inputs(DrawnInputs(inputs, tensors).first(INPUTS), sent)
        command = [
            *(str(program.binary), "-m", model, "-u", server.endpoints.grpc, "-i", "grpc"),
            *("--async", "--max-threads", "4", "--request-distribution", "poisson"),
            *("--request-rate-range", f"{tuned.credited_per_s:.3f}", "--percentile", "99"),
            *("--stability-percentage", "999", "--max-trials", "3", "-f", str(report)),
            *("--input-data", str(sent)),
        ]
        for seconds in (WARM_UP_S, SOAK_S):
            # Its report joins the three windows that it measures.
            interval = ["--measurement-interval", str(round(seconds * 1e3 / 3))]
            with (
                (place / "soak.log").open("ab") as log,
                child(
                    [*command, *interval], env=program.environment, stdout=log, cpus=cores.load
                ) as running,
            ):
                if running.wait(3 * seconds + LOAD_DEADLINE_S):
                    raise SystemExit(f"perf_analyzer failed: {log.name}")
        with report.open() as file:
            row = next(csv.DictReader(file))
    p50_ms, p99_ms = (float(row[f"{p} latency"]) / 1e3 for p in ("p50", "p99"))
    return Soak(float(row["Inferences/Second"]), p50_ms, p99_ms)


def kept(directory: Path) -> list[dict[str, Any]]:
    """A line for each run that ended."""
    file = directory / RESULTS
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


#: Of the table: a column's head, and its cell.
COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "network": lambda run: run["model"],
    "seed": lambda run: str(run["number"]),
    "ended": lambda run: run["ending"],
    "minutes": lambda run: f"{run['minutes']:.1f}",
    "planned": lambda run: run["planned"],
    "before, /s": lambda run: _number(run["before_per_s"]),
    "credited, /s": lambda run: _number(run["credited_per_s"]),
    "p99, ms": lambda run: _number(run["p99_ms"]),
    "soak, /s": lambda run: _number((run["soak"] or {}).get("throughput_per_s")),
    "its p50, ms": lambda run: _number((run["soak"] or {}).get("p50_ms")),
    "its p99, ms": lambda run: _number((run["soak"] or {}).get("p99_ms")),
}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def page(runs: list[dict[str, Any]]) -> str:
    """The table in Markdown, by network."""
    lines = [[*COLUMNS], ["---"] * len(COLUMNS)]
    ordered = sorted(runs, key=lambda run: (TUNED.index(run["model"]), run["number"]))
    lines += [[cell(run) for cell in COLUMNS.values()] for run in ordered]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measure(directory: Path, model: str, number: int) -> None:
    """Adds the line of a run, unless it is there."""
    if any((run["model"], run["number"]) == (model, number) for run in kept(directory)):
        return
    tuned = tune_completely(directory, model, number)
    tuned = replace(tuned, soak=soak(directory, tuned))
    with (directory / RESULTS).open("a") as file:
        file.write(f"{json.dumps(asdict(tuned))}\n")
    print(tuned, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, metavar="OUTDIR")
    parser.add_argument("--runs", type=int, default=1, help="of each network, with other seeds")
    parser.add_argument("--only", nargs="+", default=TUNED, choices=TUNED, metavar="NETWORK")
    parser.add_argument("--page", action="store_true", help="print the table, measure nothing")
    given = parser.parse_args()
    directory = given.directory.resolve()
    if given.page:
        print(page(kept(directory)))
        return
    for number in range(1, given.runs + 1):
        for model in given.only:
            measure(directory, model, number)


if __name__ == "__main__":
    main()
