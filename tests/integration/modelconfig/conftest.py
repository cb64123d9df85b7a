"""One real tritonserver for the tests of this directory, over a repository of small models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from builders.configs import PYTHON
from builders.ensemble_cases import ENSEMBLE, MODEL
from builders.model_files import write_model

from tuner.server.binaries import tritonserver
from tuner.server.control import Control
from tuner.server.health import live
from tuner.triton.local import LocalLauncher, LocalServer

CODE = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("y", pb_utils.get_input_tensor_by_name(r, "x").as_numpy())]
            )
            for r in requests
        ]
"""

#: An ensemble whose second step is the ensemble itself.
CIRCLE = (
    ENSEMBLE.replace('"two"', '"round"')
    .replace('"e"', '"round"')
    .replace('key: "x" value: "middle"', 'key: "in" value: "middle"')
    .replace('key: "y" value: "out"', 'key: "out" value: "out"')
)
#: Models of other dims than those of the ensemble, or of another type.
OTHERS = {
    "wide": MODEL.replace("dims: 4", "dims: 5"),
    "deep": MODEL.replace("dims: 4", "dims: [ 2, 2 ]"),
    "open": MODEL.replace("dims: 4", "dims: -1"),
    "whole": MODEL.replace("size: 4", "size: 0").replace("dims: 4", "dims: [ 7, 4 ]"),
    "flat": MODEL.replace("size: 4", "size: 0").replace("dims: 4", "dims: 5"),
    "typed": MODEL.replace("TYPE_FP32", "TYPE_FP64"),
    "decoupled": MODEL + "model_transaction_policy { decoupled: true }",
    "sequences": MODEL + "sequence_batching { }",
}
#: Over these an ensemble has a response cache.
CACHED = ("decoupled", "sequences")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models m, one, two, the ensemble e of the last two, and others around them."""
    root = tmp_path_factory.mktemp("models")
    configs = {"m": PYTHON, "one": MODEL, "two": MODEL.replace("one", "two"), "e": ENSEMBLE}
    configs["round"] = CIRCLE
    for name, config in OTHERS.items():
        configs[name] = config.replace("one", name)
        configs[f"to_{name}"] = ENSEMBLE.replace('"two"', f'"{name}"').replace(
            '"e"', f'"to_{name}"'
        ) + ("response_cache { enable: true }" if name in CACHED else "")
    labels = 'TYPE_FP32 label_filename: "labels.txt"'
    configs["labelled"] = labels.join(MODEL.replace("one", "labelled").rsplit("TYPE_FP32", 1))
    for name, config in configs.items():
        write_model(root / name, config, "" if "ensemble_scheduling" in config else CODE)
    return root


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "server.log"


@pytest.fixture(scope="module")
def running(repository: Path, log: Path) -> Iterator[Callable[[], LocalServer]]:
    """The one server; a new one where the last is gone."""
    with tritonserver(None, os.environ) as installation, ExitStack() as stack:
        launcher = LocalLauncher(installation, repository)
        started: list[LocalServer] = []

        def living() -> LocalServer:
            if not (started and started[-1].alive() and live(started[-1].endpoints)):
                started.append(stack.enter_context(launcher.launch((), log)))
            return started[-1]

        yield living


@pytest.fixture
def control(running: Callable[[], LocalServer]) -> Iterator[Control]:
    with Control(running().endpoints) as control:
        yield control
