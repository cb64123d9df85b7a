"""One server with the models of `integration.load.repository`, and load on them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from builders.load_repository import make_repository
from builders.waits import wait_until
from google.protobuf.json_format import MessageToJson
from pydantic import TypeAdapter

from tuner.load.generators import OWN_CLIENT, PERF_ANALYZER, GeneratorKind
from tuner.load.setup import Site
from tuner.load.streams_load import Asked, StreamsLoad, streams_load
from tuner.server.binaries import Installation, perf_analyzer, tritonserver
from tuner.server.control import Control
from tuner.server.server import Server
from tuner.spec.workload import Workload
from tuner.triton.local import LocalLauncher

MODELS = ("plain", "cached", "types", "image")


@dataclass(frozen=True)
class Bench:
    """A server, and generators of load for its models."""

    server: Server
    control: Control
    program: Installation
    directory: Path

    def generator(
        self, model: str, kind: GeneratorKind = PERF_ANALYZER, **workload: Any
    ) -> StreamsLoad:
        carried = {
            name: workload.pop(name) for name in ("inputs", "batch_size") if name in workload
        }
        asked = TypeAdapter(Asked).validate_python({"model": model, **carried})
        return self.streams({"": asked}, kind, **workload)

    def streams(
        self, asked: Mapping[str, Asked], kind: GeneratorKind = OWN_CLIENT, **workload: Any
    ) -> StreamsLoad:
        models = [stream.model for stream in asked.values()]
        return streams_load(
            Workload.model_validate(workload),
            asked,
            {model if len(models) > 1 else "": model for model in models},
            Site(self.control, self.server.endpoints, self.program, self.directory),
            kind,
        )


@pytest.fixture(scope="session")
def program() -> Iterator[Installation]:
    with perf_analyzer(None, os.environ) as found:
        yield found


@pytest.fixture(scope="session")
def one_bench(program: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with started(program, tmp_path_factory.mktemp("load")) as bench:
        yield bench


@pytest.fixture(scope="session")
def plain_at_first(one_bench: Bench) -> str:
    return MessageToJson(one_bench.control.running_config("plain"))


@pytest.fixture(scope="module")
def bench(one_bench: Bench, plain_at_first: str) -> Bench:
    """One server for all files, each of which begins with `plain` as its file has it, and idle.

    Its config is given: loaded without one, Triton 2.51 keeps what it was given last.
    """
    one_bench.control.load("plain", plain_at_first, 60.0)

    def idle() -> bool:
        metrics = one_bench.control.metrics()
        return metrics is not None and not any(metrics.values("nv_inference_pending_request_count"))

    wait_until(idle, 60)
    return one_bench


@contextmanager
def started(program: Installation, directory: Path) -> Iterator[Bench]:
    repository = make_repository(directory)
    with tritonserver(None, os.environ) as installation:
        launcher = LocalLauncher(installation, repository)
        cache = ["--cache-config=local,size=4194304"]
        with (
            launcher.launch(cache, directory / "server.log") as server,
            Control(server.endpoints, timeout_s=3.0) as control,
            ThreadPoolExecutor() as loading,
        ):
            list(loading.map(lambda model: control.load(model, None, 60.0), MODELS))
            yield Bench(server, control, program, directory)
