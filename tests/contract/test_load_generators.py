"""What every generator of load must do."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from builders.load_repository import make_repository

from tuner.errors import LoadFailedError, ServerGoneError
from tuner.load.generators import PERF_ANALYZER, TUNE_CLIENT, LoadGenerator
from tuner.load.setup import Site, StreamRequests
from tuner.load.streams_load import streams_load
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.server.binaries import perf_analyzer, tritonserver
from tuner.server.control import Control
from tuner.spec.workload import Workload
from tuner.triton.local import LocalLauncher

pytestmark = [pytest.mark.integration, pytest.mark.measuring]

RATE = 40.0
OPEN = LoadPoint(Arrivals.POISSON, RATE)
CLOSED = LoadPoint(Arrivals.CLOSED, 2)
WINDOW = Window(duration_s=2.0, warmup_s=0.3, deadline_s=60.0, tail_s=0.2)


@dataclass(frozen=True)
class Case:
    """A generator for a model that answers `RATE` with ease, and the process of its server."""

    generator: LoadGenerator
    server_pid: int


@pytest.fixture(scope="module", params=[PERF_ANALYZER, TUNE_CLIENT], ids=["perf_analyzer", "own"])
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Case]:
    directory = tmp_path_factory.mktemp("load")
    repository = make_repository(directory)
    with (
        tritonserver(None, os.environ) as installation,
        perf_analyzer(None, os.environ) as program,
        LocalLauncher(installation, repository).launch((), directory / "log") as server,
        Control(server.endpoints) as control,
    ):
        control.load("plain", None, 60.0)
        site = Site(control, server.endpoints, program, directory)
        requests = {"plain": StreamRequests("plain")}
        generator = streams_load(Workload(), requests, ["plain"], site, request.param)
        yield Case(generator, server.pid)


@pytest.fixture(scope="module")
def measurement(case: Case) -> Measurement:
    """What `OPEN` showed."""
    return case.generator.measure(OPEN, WINDOW, seed=1)


def test_below_saturation_all_requests_are_answered(measurement: Measurement) -> None:
    assert measurement.throughput_infer_per_s == pytest.approx(RATE, rel=0.05)
    assert measurement.load == OPEN
    assert measurement.seed == 1
    assert measurement.failed_count == 0
    assert measurement.error_rate == 0.0
    assert measurement.unanswered_count == 0


@pytest.mark.parametrize("load", [OPEN, CLOSED], ids=str)
def test_percentiles_are_ordered(case: Case, measurement: Measurement, load: LoadPoint) -> None:
    if load != OPEN:
        measurement = case.generator.measure(load, WINDOW, seed=1)
    percentiles = [
        measurement.p50_latency_us,
        measurement.p90_latency_us,
        measurement.p95_latency_us,
        measurement.p99_latency_us,
    ]
    assert percentiles == sorted(percentiles)
    assert percentiles[0] > 0.0
    assert measurement.completed_count > 0


def test_the_same_seed_offers_the_same_load(case: Case, measurement: Measurement) -> None:
    again = case.generator.measure(OPEN, WINDOW, seed=1)
    assert again.throughput_infer_per_s == pytest.approx(
        measurement.throughput_infer_per_s, rel=0.05
    )
    assert (again.sent_per_s, again.seed) == (measurement.sent_per_s, measurement.seed)


def test_a_measurement_survives_json(measurement: Measurement) -> None:
    assert Measurement.from_json(json.loads(json.dumps(measurement.to_json()))) == measurement


def test_a_deadline_that_passes_is_no_result(case: Case) -> None:
    hasty = Window(duration_s=2.0, warmup_s=0.3, deadline_s=0.5, tail_s=0.2)
    with pytest.raises(LoadFailedError):
        case.generator.measure(OPEN, hasty, seed=1)


def test_dead_server_is_distinguished_from_a_failed_load(case: Case) -> None:
    """The last one: it kills the server in the middle of a measurement."""
    threading.Timer(1.0, os.kill, (case.server_pid, signal.SIGKILL)).start()
    with pytest.raises(ServerGoneError):
        case.generator.measure(OPEN, WINDOW, seed=1)
