"""One server with the models of `builders.load_repository`, and load on them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.load_bench import Bench, started
from builders.waits import wait_until
from google.protobuf.json_format import MessageToJson

from tuner.server.binaries import Installation, Origin, has_perf_analyzer, perf_analyzer


@pytest.fixture(scope="session")
def program() -> Iterator[Installation]:
    """As in a run: this Python stands in for a perf_analyzer that is not there."""
    if not has_perf_analyzer(None, os.environ):
        yield Installation(Path(sys.executable), "none", Origin.PATH, os.environ)
        return
    with perf_analyzer(None, os.environ) as installation:
        yield installation


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
