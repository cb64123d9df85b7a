"""A variable of a candidate on a real server: it reaches the model's process, and restarts it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders.model_files import write_model
from contract.server_contract import answer

from tuner.modelconfig.served import read_served
from tuner.server.binaries import Installation
from tuner.space.candidate import Candidate
from tuner.triton.changes import DeploymentKind
from tuner.triton.deploy import Deployer
from tuner.triton.local import LocalLauncher

pytestmark = pytest.mark.integration

CONFIG = """\
backend: "python"
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1, 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1, 4 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""
CODE = """\
import os

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
        found = pb_utils.Tensor("y", numpy.full((1, 4), threads, dtype=numpy.float32))
        return [pb_utils.InferenceResponse([found]) for _ in requests]
"""


def started(count: int, threads: int | None) -> Candidate:
    fields = {"instance_group.count": count}
    return Candidate.of_models({"m": fields}, environment={"OMP_NUM_THREADS": threads})


def test_a_candidates_variable_reaches_the_model_and_another_one_restarts_the_server(
    installation: Installation, tmp_path: Path
) -> None:
    write_model(tmp_path / "models" / "m", CONFIG, CODE)
    inherited = {**installation.environment, "OMP_NUM_THREADS": "7"}
    launcher = LocalLauncher(
        replace(installation, environment=inherited), tmp_path / "models", models=("m",)
    )
    served = read_served(launcher.repository, ["m"])
    steps = [
        (Candidate(), DeploymentKind.RESTART, 7),
        (started(1, 1), DeploymentKind.RESTART, 1),
        (started(2, 1), DeploymentKind.IN_PLACE, 1),
        (started(2, None), DeploymentKind.RESTART, 0),
    ]
    with Deployer(launcher, served, tmp_path / "log") as deployer:
        for candidate, kind, threads in steps:
            deployment = deployer.deploy(candidate)
            assert deployment.kind is kind
            assert answer(deployment.endpoints, "m", [1, 2, 3, 4]) == [threads] * 4
