"""Closed loops and memory on the served models: what the tuning runs do not show.

    python benchmarks/gpu/sweep.py loads --repository DIR --output FILE [--device cpu]
    python benchmarks/gpu/sweep.py memory --repository DIR --output FILE
    python benchmarks/gpu/sweep.py transports --repository DIR --output FILE

``loads`` puts 1 to 128 requests in flight on a few fixed configs of BERT, ``memory`` loads more
and more instances until they are refused, ``transports`` compares gRPC with HTTP, and shared memory
with none. Each appends a JSON line to FILE for every result at once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format
from models import BERT, CNN, HEAVY, Device
from tritonclient.grpc import model_config_pb2

from tuner.errors import DeployRefusedError
from tuner.load.generators import Demand, choose
from tuner.load.perf_analyzer import outputs
from tuner.load.setup import Site, StreamRequests
from tuner.load.streams_load import streams_load
from tuner.machine.host import read_gpus
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.server.binaries import Installation, perf_analyzer, tritonserver
from tuner.server.control import Control
from tuner.server.server import Endpoints, Place
from tuner.spec.arrivals import ClosedArrivals
from tuner.spec.workload import RandomInputs, Workload
from tuner.triton.local import LocalLauncher

#: As in the specs. Completing a config would import PyTorch once more at every load.
SERVER_ARGS = ("--metrics-interval-ms=500", "--disable-auto-complete-config")
LOAD_DEADLINE_S = 120.0
RUN_DEADLINE_S = 60.0
WINDOW = Window(duration_s=2.0, warmup_s=0.5, deadline_s=RUN_DEADLINE_S)
#: Batches as the seeds of the project recommend them: 32 at most, 8, 16 or 32 preferred, 5 ms.
RECOMMENDED = {"preferred_batch_size": [8, 16, 32], "max_queue_delay_microseconds": 5000}
#: Images of 4 KiB and 1 MiB.
SIDES = (32, 512)


@dataclass(frozen=True)
class Config:
    """One of the fixed configs; ``batching`` is None without a batcher."""

    name: str
    instances: int
    batching: Mapping[str, Any] | None


CONFIGS = (
    Config("unbatched", 1, None),
    Config("Triton's default", 1, {}),
    Config("recommended", 1, RECOMMENDED),
    Config("recommended, 2 instances", 2, RECOMMENDED),
    Config("recommended, 4 instances", 4, RECOMMENDED),
)


@dataclass(frozen=True)
class Bed:
    """A running server and the file for the results."""

    repository: Path
    device: Device
    control: Control
    endpoints: Endpoints
    program: Installation
    directory: Path
    output: Path

    def load(self, model: str, instances: int, batching: Mapping[str, Any] | None) -> None:
        """Loads a model; when only instances differ, Triton adds or removes some in place."""
        text = (self.repository / model / "config.pbtxt").read_text()
        message = text_format.Parse(text, model_config_pb2.ModelConfig())
        config = json_format.MessageToDict(message, preserving_proto_field_name=True)
        config["instance_group"] = [{"count": instances, "kind": f"KIND_{self.device.name}"}]
        if batching is not None:
            config["dynamic_batching"] = dict(batching)
        self.control.load(model, json.dumps(config), LOAD_DEADLINE_S)

    def add(self, row: Mapping[str, Any]) -> None:
        with self.output.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


@contextmanager
def bed(given: argparse.Namespace) -> Iterator[Bed]:
    with (
        tempfile.TemporaryDirectory(prefix="gpu-sweep-") as temporary,
        tritonserver(None, os.environ) as installation,
        perf_analyzer(None, os.environ) as program,
        LocalLauncher(
            installation, given.repository, SERVER_ARGS, restricted=("model-repository",)
        ).launch([], given.output.with_suffix(".log")) as server,
        Control(server.endpoints) as control,
    ):
        device = Device(given.device)
        directory = Path(temporary)
        yield Bed(
            given.repository, device, control, server.endpoints, program, directory, given.output
        )


def loads(bed: Bed, levels: Sequence[int]) -> None:
    """Closed loops on each of `CONFIGS`."""
    workload = Workload(arrivals=ClosedArrivals(kind="closed", restarts=1))
    requests = StreamRequests(
        BERT.name, RandomInputs(kind="random", unique=500, int_range=(1, 999))
    )
    for config in CONFIGS:
        bed.load(BERT.name, config.instances, config.batching)
        generator = streams_load(
            workload,
            {BERT.name: requests},
            [BERT.name],
            Site(bed.control, bed.endpoints, bed.program, bed.directory, place=Place.HERE),
            choose([Demand(bed.control.running_config(BERT.name), {}, 1, may_refuse=False)]).kind,
        )
        for level in levels:
            measured = generator.measure(LoadPoint(Arrivals.CLOSED, level), WINDOW, seed=level)
            bed.add({"kind": "load", **asdict(config), **_figures(measured), "concurrency": level})


def _figures(measured: Measurement) -> dict[str, Any]:
    host, server = measured.host, measured.server
    return {
        "throughput_infer_per_s": measured.throughput_infer_per_s,
        "avg_latency_us": measured.avg_latency_us,
        "p50_latency_us": measured.p50_latency_us,
        "p95_latency_us": measured.p95_latency_us,
        "p99_latency_us": measured.p99_latency_us,
        "mean_batch_size": server.mean_batch_size if server else None,
        "gpu_memory_used_bytes": host.gpu_memory_used_bytes,
        "gpu_utilization": host.gpu_utilization,
        "gpu_power_w": host.gpu_power_w,
        "gpu_clock_mhz": host.gpu_clock_mhz,
        "cpu_percent": host.cpu_percent,
    }


def memory(bed: Bed, counts: Sequence[int]) -> None:
    """GPU memory by instances, for a small model and for a heavy one, four of which do not fit."""
    for model in (BERT.name, HEAVY.name):
        bed.add({"kind": "memory", "model": model, "instances": 0, **_memory_mib()})
        for instances in counts:
            try:
                bed.load(model, instances, {})
            except DeployRefusedError as refused:
                row = {"instances": instances, "refused": refused.message}
                bed.add({"kind": "memory", "model": model, **row})
                break
            bed.add({"kind": "memory", "model": model, "instances": instances, **_memory_mib()})
        bed.control.unload(model, LOAD_DEADLINE_S)


def _memory_mib() -> dict[str, float]:
    """Used and total memory of the first GPU, by ``nvidia-smi``; nothing without it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    query = [program, "--id=0", "--query-gpu=memory.used,memory.total"]
    done = subprocess.run(
        [*query, "--format=csv,noheader,nounits"],
        check=True,
        capture_output=True,
        text=True,
        timeout=RUN_DEADLINE_S,
    )
    used, total = map(float, done.stdout.split(","))
    return {"used_mib": used, "total_mib": total}


def transports(bed: Bed, levels: Sequence[int]) -> None:
    """gRPC and HTTP on both models, and shared memory with images of two sizes."""
    shared = ["none", "system", *(["cuda"] if bed.device is Device.GPU else [])]
    ids = bed.directory / "ids.json"
    ids.write_text(json.dumps({"data": [{"input_ids": [1] * 128}]}))
    cases = [(BERT.name, "tokens", ["--input-data", str(ids)], ["none"])]
    for side in SIDES:
        shape = ["--input-data", "zero", "--shape", f"image:1,{side},{side}"]
        cases.append((CNN.name, f"{side}x{side}", shape, shared))
    for model, inputs, arguments, memories in cases:
        bed.load(model, 2, {})
        for protocol in ("grpc", "http"):
            for where in memories:
                for level in levels:
                    options = [*arguments, "--shared-memory", where]
                    options += ["--output-shared-memory-size", "4096"] * (where != "none")
                    report = _perf_analyzer(bed, model, protocol, level, options)
                    row = {"model": model, "inputs": inputs, "protocol": protocol}
                    row["shared_memory"] = where
                    bed.add({"kind": "transport", **row, "concurrency": level, **report})


def _perf_analyzer(
    bed: Bed, model: str, protocol: str, level: int, options: Sequence[str]
) -> dict[str, Any]:
    """One run, or why it failed: a transport that does not work is a result too."""
    report = bed.directory / "report.csv"
    report.unlink(missing_ok=True)
    endpoint = bed.endpoints.grpc if protocol == "grpc" else bed.endpoints.http
    command = [str(bed.program.binary), "-m", model, "-u", endpoint, "-i", protocol, "--async"]
    command += ["--concurrency-range", str(level), "--measurement-interval", "600"]
    command += ["--stability-percentage", "999", "--max-trials", "3", *options]
    done = subprocess.run(
        [*command, "-f", str(report), "--verbose-csv"],
        env=dict(bed.program.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_DEADLINE_S,
        check=False,
    )
    if done.returncode != 0:
        return {"failed": done.stdout.strip().splitlines()[-1:]}
    return outputs.read_report(report)


WHAT: dict[str, Callable[[Bed, Sequence[int]], None]] = {
    "loads": loads,
    "memory": memory,
    "transports": transports,
}
LEVELS = {
    "loads": (1, 2, 4, 8, 16, 32, 64, 128),
    "memory": (1, 2, 3, 4, 5, 6),
    "transports": (1, 32),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, help="JSON lines are added to it")
    parser.add_argument("--device", choices=[d.value for d in Device], default="gpu")
    parser.add_argument("--levels", type=int, nargs="+", help="requests in flight, or instances")
    given = parser.parse_args()
    given.output.parent.mkdir(parents=True, exist_ok=True)
    with bed(given) as running, suppress(KeyboardInterrupt):  # what is measured is on disk
        running.add({"kind": "machine", "gpus": [gpu.name for gpu in read_gpus(os.environ)]})
        WHAT[given.what](running, given.levels or LEVELS[given.what])


if __name__ == "__main__":
    main()
