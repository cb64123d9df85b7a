"""One server with the models of `builders.load_repository`, and load on them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from builders.load_repository import make_repository
from pydantic import TypeAdapter

from tuner.load.generators import PERF_ANALYZER, TUNE_CLIENT, GeneratorKind
from tuner.load.setup import Site, StreamRequests
from tuner.load.streams_load import StreamsLoad, streams_load
from tuner.server.binaries import Installation, tritonserver
from tuner.server.control import Control
from tuner.server.server import Server
from tuner.spec.workload import Workload
from tuner.triton.local import LocalLauncher

MODELS = (
    *("plain", "cached", "types", "image", "words", "texts", "ragged", "delays", "over"),
    *("scaling", "scaling-cached"),
)


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
        if kind is PERF_ANALYZER and self.program.version == "none":
            pytest.skip("no perf_analyzer for this Python and this glibc")
        carried = {
            name: workload.pop(name) for name in ("inputs", "batch_size") if name in workload
        }
        requests = TypeAdapter(StreamRequests).validate_python({"model": model, **carried})
        return self.streams({model: requests}, kind, **workload)

    def streams(
        self,
        requests: Mapping[str, StreamRequests],
        kind: GeneratorKind = TUNE_CLIENT,
        **workload: Any,
    ) -> StreamsLoad:
        models = [stream.model for stream in requests.values()]
        return streams_load(
            Workload.model_validate(workload),
            requests,
            dict.fromkeys(models),
            Site(self.control, self.server.endpoints, self.program, self.directory),
            kind,
        )


@contextmanager
def started(
    program: Installation,
    directory: Path,
    arguments: Sequence[str] = (),
    models: Iterable[str] = MODELS,
) -> Iterator[Bench]:
    """A server of the models for loads, with a response cache."""
    make_repository(directory)
    cache = ["--cache-config=local,size=4194304", *arguments]
    with serving_all(program, directory, models, cache) as bench:
        yield bench


@contextmanager
def serving_all(
    program: Installation, directory: Path, models: Iterable[str], arguments: Sequence[str] = ()
) -> Iterator[Bench]:
    """A server of the repository in the directory, with these models loaded."""
    with tritonserver(None, os.environ) as installation:
        launcher = LocalLauncher(installation, directory / "repository")
        with (
            launcher.launch(arguments, directory / "server.log") as server,
            Control(server.endpoints, timeout_s=3.0) as control,
            ThreadPoolExecutor() as loading,
        ):
            list(loading.map(lambda model: control.load(model, None, 60.0), models))
            yield Bench(server, control, program, directory)
