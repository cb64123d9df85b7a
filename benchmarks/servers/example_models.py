"""Throughput and latency of an example model under a few configs: for benchmarks/models.md.

    python benchmarks/servers/example_models.py tiny-bert
    python benchmarks/servers/example_models.py emulated-accelerator --docker IMAGE --network bridge

Closed loop, so that throughput is what the config can do at that many requests at once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

from tuner.load.setup import Site, StreamRequests
from tuner.load.streams_load import streams_load
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window
from tuner.server.binaries import perf_analyzer, tritonserver
from tuner.server.control import Control
from tuner.server.server import ServerLauncher
from tuner.spec.arrivals import ClosedArrivals
from tuner.spec.workload import FileInputs, Inputs, RandomInputs, Workload
from tuner.triton.docker import DockerLauncher, Network
from tuner.triton.local import LocalLauncher

REPOSITORY = Path(__file__).parents[2] / "model_repository"
LOAD_DEADLINE_S = 60.0
WINDOW = Window(duration_s=3.0, warmup_s=0.5, deadline_s=60.0)


def changes(instances: int, batching: dict[str, Any] | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"instance_group": [{"count": instances, "kind": "KIND_CPU"}]}
    return fields if batching is None else {**fields, "dynamic_batching": batching}


CONFIGS = {
    "1 instance": changes(1, None),
    "2 instances": changes(2, None),
    "4 instances": changes(4, None),
    "1, dynamic batching": changes(1, {}),
    "2, dynamic batching": changes(2, {}),
    "4, dynamic batching": changes(4, {}),
    "2, delay 3 ms": changes(2, {"max_queue_delay_microseconds": 3000}),
}


def inputs_for(model: str, directory: Path) -> Inputs:
    """200 different inputs: random tensors, or for the tokenizer 20 words of its vocabulary."""
    inputs: Inputs = RandomInputs(kind="random", unique=200, int_range=(0, 1))
    if model == "tokenizer":
        pieces = (REPOSITORY / model / "1" / "vocab.txt").read_text().split()
        words, choose = [p for p in pieces if p.isalpha()], random.Random(0)
        texts = [{"text": [" ".join(choose.choices(words, k=20))]} for _ in range(200)]
        file = directory / "texts.json"
        file.write_text(json.dumps({"data": texts}))
        inputs = FileInputs(kind="file", file=file)
    return inputs


def config_json(model: str, fields: dict[str, Any]) -> str:
    text = (REPOSITORY / model / "config.pbtxt").read_text()
    message = text_format.Parse(text, model_config_pb2.ModelConfig())
    config = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return json.dumps({**config, **fields})


@contextmanager
def launcher(image: str | None, network: str) -> Iterator[ServerLauncher]:
    if image is not None:
        yield DockerLauncher(image, REPOSITORY, os.environ, network=Network(network))
        return
    with tritonserver(None, os.environ) as installation:
        yield LocalLauncher(installation, REPOSITORY)


def measure(model: str, server: ServerLauncher, levels: list[int], directory: Path) -> None:
    print(f"| {model} | concurrency | infer/s | p50 ms | p99 ms |\n|---|---|---|---|---|")
    load, inputs = Workload(arrivals=ClosedArrivals(kind="closed")), inputs_for(model, directory)
    with (
        perf_analyzer(None, os.environ) as program,
        server.launch([], directory / "server.log") as running,
        Control(running.endpoints) as control,
    ):
        for name, fields in CONFIGS.items():
            control.load(model, config_json(model, fields), LOAD_DEADLINE_S)
            site = Site(control, running.endpoints, program, directory)
            client = streams_load(load, {model: StreamRequests(model, inputs)}, [model], site)
            for level in levels:
                m = client.measure(LoadPoint(Arrivals.CLOSED, level), WINDOW, seed=level)
                latencies = f"{m.p50_latency_us / 1e3:.1f} | {m.p99_latency_us / 1e3:.1f}"
                print(f"| {name} | {level} | {m.throughput_infer_per_s:.0f} | {latencies} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--docker", metavar="IMAGE")
    parser.add_argument("--network", choices=[n.value for n in Network], default="host")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        launcher(given.docker, given.network) as server,
    ):
        measure(given.model, server, given.concurrency, Path(directory))


if __name__ == "__main__":
    main()
