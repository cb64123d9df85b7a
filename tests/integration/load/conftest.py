"""One server with the models of `integration.load.repository`, and load on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from integration.load.repository import make_repository

from tuner.load.generators import PERF_ANALYZER, GeneratorKind
from tuner.load.model_load import ModelLoad, model_load
from tuner.spec.forms import CARRIED
from tuner.spec.workload import Requests, Workload
from tuner.triton.binaries import Installation, perf_analyzer, tritonserver
from tuner.triton.control import Control
from tuner.triton.local import LocalLauncher
from tuner.triton.server import Server


@dataclass(frozen=True)
class Bench:
    """A server, and generators of load for its models."""

    server: Server
    control: Control
    program: Installation
    directory: Path

    def generator(
        self, model: str, kind: GeneratorKind = PERF_ANALYZER, **workload: Any
    ) -> ModelLoad:
        return model_load(
            Workload.model_validate({k: v for k, v in workload.items() if k not in CARRIED}),
            model,
            self.control,
            self.server.endpoints,
            self.program,
            self.directory,
            kind=kind,
            requests=Requests.model_validate({k: workload[k] for k in CARRIED if k in workload}),
        )


@pytest.fixture(scope="session")
def program() -> Iterator[Installation]:
    with perf_analyzer(None, os.environ) as found:
        yield found


@pytest.fixture(scope="module")
def bench(program: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    directory = tmp_path_factory.mktemp("load")
    repository = make_repository(directory)
    with tritonserver(None, os.environ) as installation:
        launcher = LocalLauncher(installation, repository)
        cache = ["--cache-config=local,size=4194304"]
        with (
            launcher.launch(cache, directory / "server.log") as server,
            Control(server.endpoints, timeout_s=3.0) as control,
        ):
            for model in ("plain", "cached", "types", "image"):
                control.load(model, None, 60.0)
            yield Bench(server, control, program, directory)
