"""A server that reads images from shared memory, and load on it; as a program, until it is killed.

``python -m builders.shared_images DIRECTORY`` writes the server's process id.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from builders.model_files import write_model
from pydantic import TypeAdapter

from tuner.load.generators import TUNE_CLIENT
from tuner.load.setup import Site, StreamRequests
from tuner.load.streams_load import StreamsLoad, streams_load
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window
from tuner.server.binaries import Installation, Origin, tritonserver
from tuner.server.control import Control
from tuner.spec.workload import Workload
from tuner.triton.local import LocalLauncher

IMAGES = {"small": [3, 224, 224], "large": [4, 256, 256]}  # 602,112 bytes and 1 MiB
LOAD = LoadPoint(Arrivals.POISSON, 40.0)
LONG = Window(duration_s=60.0, warmup_s=0.1, deadline_s=90.0)
#: Answers with what only the whole image says.
MODEL = """
import hashlib

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        images = [pb.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        seen = [[[*hashlib.sha256(one.tobytes()).digest()] for one in own] for own in images]
        return [pb.InferenceResponse([pb.Tensor("y", np.array(s, dtype="u1"))]) for s in seen]
"""
CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 4
input [ {{ name: "x" data_type: TYPE_FP32 dims: {dims} }} ]
output [ {{ name: "y" data_type: TYPE_UINT8 dims: [ 32 ] }} ]
"""


@contextmanager
def serving_images(directory: Path, *models: str) -> Iterator[tuple[int, Site]]:
    """The server's process id, and where load goes."""
    for name, dims in IMAGES.items():
        write_model(directory / "repository" / name, CONFIG.format(name=name, dims=dims), MODEL)
    program = Installation(Path(sys.executable), "none", Origin.PATH, os.environ)
    with tritonserver(None, os.environ) as server:
        launcher = LocalLauncher(server, directory / "repository", shares=True)
        with (
            launcher.launch([], directory / "log") as made,
            Control(made.endpoints) as control,
        ):
            for model in models:
                control.load(model, None, 60.0)
            yield made.pid, Site(control, made.endpoints, program, directory)


def images_on(
    site: Site, model: str, protocol: str = "grpc", *, outputs: bool = False, **settings: Any
) -> StreamsLoad:
    inputs = {"kind": "random", "unique": 4}
    stream = TypeAdapter(StreamRequests).validate_python(
        {"model": model, "inputs": inputs, **settings}
    )
    workload = Workload.model_validate({"protocol": protocol, "shared_outputs": outputs})
    return streams_load(workload, {model: stream}, [model], site, TUNE_CLIENT)


def main(directory: Path) -> None:
    with serving_images(directory, "large") as (pid, site):
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        images_on(site, "large").measure(LOAD, LONG, 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
