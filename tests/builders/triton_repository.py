"""A small model repository for the tests of servers, with one model that can misbehave on order."""

from __future__ import annotations

from pathlib import Path

from builders.ensemble_cases import step
from builders.model_files import write_model

MODEL = "doubler"

#: ``parameters.behaviour`` decides what happens when the model is loaded; ``parameters.lock``
#: names a file that only one copy of the model can hold, like memory that is there once, or a
#: device ("device" in its name).
CONFIG = """\
backend: "python"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
dynamic_batching { }
parameters { key: "behaviour" value { string_value: "good" } }
parameters { key: "lock" value { string_value: "" } }
"""

CODE = """\
import fcntl
import json
import os
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        behaviour = parameters["behaviour"]["string_value"]
        if behaviour == "hang":
            time.sleep(3600)
        while behaviour == "spin":
            pass
        if behaviour == "raise":
            raise ValueError("no such weights")
        if behaviour == "die":
            os._exit(3)
        if lock := parameters["lock"]["string_value"]:
            self.memory = open(lock, "w")
            try:
                fcntl.flock(self.memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if "device" in lock:
                    raise pb_utils.TritonModelException("device 0 is in use") from None
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB") from None

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("y", pb_utils.get_input_tensor_by_name(r, "x").as_numpy() * 2)]
            )
            for r in requests
        ]
"""


def make_repository(directory: Path) -> Path:
    """Writes the repository into ``directory/models`` and returns its path."""
    repository = directory / "models"
    write_model(repository / MODEL, CONFIG, CODE)
    return repository


FIRST, SECOND, TOP = "first", "second", "whole"
#: Doubles twice, by two models that can misbehave on order.
ENSEMBLE = f"""\
platform: "ensemble"
max_batch_size: 4
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 4 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 4 ] }} ]
ensemble_scheduling {{ {step(FIRST, "x", "middle")} {step(SECOND, "middle", "y")} }}
"""


def make_ensemble(directory: Path) -> Path:
    """Writes an ensemble of two steps into ``directory/models`` and returns that path."""
    repository = directory / "models"
    for name in (FIRST, SECOND):
        write_model(repository / name, CONFIG, CODE)
    write_model(repository / TOP, ENSEMBLE)
    return repository
