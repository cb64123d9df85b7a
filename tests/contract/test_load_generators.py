"""The contract of load generators, held against every generator there is."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders.load_repository import make_repository
from contract.load_contract import LoadCase, LoadGeneratorContract

from tuner.load.generators import OWN_CLIENT, PERF_ANALYZER, GeneratorKind, LoadGenerator
from tuner.load.setup import Site
from tuner.load.streams_load import Asked, streams_load
from tuner.server.binaries import perf_analyzer, tritonserver
from tuner.server.control import Control
from tuner.spec.workload import Workload
from tuner.triton.local import LocalLauncher

pytestmark = [pytest.mark.integration, pytest.mark.measuring]


@contextmanager
def a_case(directory: Path, kind: GeneratorKind) -> Iterator[LoadCase]:
    repository = make_repository(directory)
    with (
        tritonserver(None, os.environ) as installation,
        perf_analyzer(None, os.environ) as program,
        LocalLauncher(installation, repository).launch((), directory / "log") as server,
        Control(server.endpoints) as control,
    ):
        control.load("plain", None, 60.0)
        site = Site(control, server.endpoints, program, directory)
        generator = streams_load(Workload(), {"plain": Asked("plain")}, ["plain"], site, kind)

        def kill_in_a_second() -> LoadGenerator:
            threading.Timer(1.0, os.kill, (server.pid, signal.SIGKILL)).start()
            return generator  # it will be in the middle of a run

        yield LoadCase(generator, kill_in_a_second)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadCase]:
    with a_case(tmp_path_factory.mktemp("plain"), PERF_ANALYZER) as case:
        yield case


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadCase]:
    with a_case(tmp_path_factory.mktemp("own"), OWN_CLIENT) as case:
        yield case


class TestPerfAnalyzer(LoadGeneratorContract):
    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, plain: LoadCase) -> LoadCase:
        return plain


class TestOpenClient(LoadGeneratorContract):
    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, own: LoadCase) -> LoadCase:
        return own
