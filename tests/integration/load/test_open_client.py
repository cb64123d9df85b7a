"""Real rejects on a real server, and agreement with perf_analyzer where nothing is rejected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
from builders.load_repository import CAPACITY_PER_S, SERVICE_S
from builders.strings import needs_strings
from google.protobuf.json_format import MessageToJson

from tuner.errors import SpecError
from tuner.load.client.generator import OpenClient
from tuner.load.generators import TUNE_CLIENT
from tuner.load.streams_load import StreamsLoad
from tuner.measurement.measurement import Arrivals, FailureReason, LoadPoint
from tuner.measurement.window import Window

if TYPE_CHECKING:
    from builders.load_bench import Bench

pytestmark = [pytest.mark.integration, pytest.mark.measuring]

SHORT = Window(duration_s=1.0, warmup_s=0.3, deadline_s=30.0, tail_s=0.2)
LONG = Window(duration_s=2.0, warmup_s=0.3, deadline_s=30.0, tail_s=0.2)
OVERLOAD = LoadPoint(Arrivals.POISSON, 4 * CAPACITY_PER_S)


def poisson(rate: float) -> LoadPoint:
    return LoadPoint(Arrivals.POISSON, rate)


def queue(bench: Bench, **policy: int) -> StreamsLoad:
    """Model ``plain``, one request at a time, with a queue policy."""
    config = bench.control.running_config("plain")
    config.max_batch_size = 1
    config.dynamic_batching.SetInParent()
    config.dynamic_batching.ClearField("default_queue_policy")
    for field, value in policy.items():
        setattr(config.dynamic_batching.default_queue_policy, field, value)
    bench.control.load("plain", MessageToJson(config), 60.0)
    return bench.generator("plain", TUNE_CLIENT)


def client(bench: Bench, model: str, **workload: Any) -> OpenClient:
    return OpenClient(**vars(bench.generator(model, **workload).setup))


@pytest.fixture(autouse=True)
def _leaves_nothing_behind(bench: Bench) -> Iterator[None]:
    yield
    assert not list(bench.directory.glob("load-*"))


def test_a_full_queue_under_overload(bench: Bench) -> None:
    """Throughput is not bounded from below: a full queue makes this Triton (24.10) pause.

    Rejected requests do not wake its batcher, which then looks by itself twice a second.
    """
    measurement = queue(bench, max_queue_size=8).measure(OVERLOAD, LONG, seed=1)
    assert "tuner.load.client.process" in measurement.command
    assert 0.0 < measurement.throughput_infer_per_s <= CAPACITY_PER_S
    assert measurement.sent_per_s == pytest.approx(OVERLOAD.level, rel=0.05)
    accounted = (
        measurement.completed_count + measurement.failed_count + measurement.unanswered_count
    )
    assert accounted == pytest.approx(OVERLOAD.level * LONG.duration_s, abs=20)
    assert measurement.failed_count == measurement.rejected_count
    assert {*measurement.failures} == {FailureReason.QUEUE_FULL}
    assert measurement.error_rate is not None
    assert measurement.error_rate > 0.5
    assert measurement.unanswered_count <= 10


def test_a_queue_timeout_bounds_the_latency(bench: Bench) -> None:
    timed = queue(bench, default_timeout_microseconds=30_000)
    measurement = timed.measure(OVERLOAD, LONG, seed=1)
    assert 0.7 * CAPACITY_PER_S < measurement.throughput_infer_per_s <= CAPACITY_PER_S
    refused = OVERLOAD.level - measurement.throughput_infer_per_s
    assert measurement.rejected_count / LONG.duration_s == pytest.approx(refused, rel=0.05)
    assert measurement.error_rate == pytest.approx(0.77, abs=0.06)
    assert measurement.p90_latency_us < (0.030 + 4 * SERVICE_S) * 1e6


@pytest.mark.parametrize("protocol", ["grpc", "http", "http-json"])
def test_a_closed_loop_keeps_its_clients_waiting(bench: Bench, protocol: str) -> None:
    queue(bench)
    load = client(bench, "plain", protocol=protocol)
    measurement = load.measure(LoadPoint(Arrivals.CLOSED, 3), SHORT, seed=1)
    assert measurement.mean_in_flight == pytest.approx(3.0, abs=0.2)
    assert measurement.p50_latency_us == pytest.approx(3 * SERVICE_S * 1e6, rel=0.3)
    assert 0.6 * CAPACITY_PER_S < measurement.throughput_infer_per_s <= CAPACITY_PER_S


def test_images_have_the_latency_of_each_request(bench: Bench) -> None:
    """600 kB a request, 180 MB a second; perf_analyzer would export a gigabyte."""
    load = client(bench, "image", inputs={"kind": "random", "unique": 4})
    before_count = bench.control.statistics("image").success_count
    measurement = load.measure(poisson(300.0), SHORT, seed=1)
    counted = bench.control.statistics("image").success_count - before_count
    assert counted == pytest.approx(300 * SHORT.total_s, rel=0.1)
    assert measurement.latencies_us is not None
    assert measurement.latencies_us.size == pytest.approx(300 * SHORT.duration_s, rel=0.1)
    assert measurement.failed_count == 0
    assert measurement.sent_per_s == pytest.approx(300.0, rel=0.1)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_client_of_tune_measures_the_latencies_of_perf_analyzer(
    bench: Bench, protocol: str
) -> None:
    """The same load in turns; a busy machine only ever makes latencies longer."""
    queue(bench)
    load = bench.generator("plain", TUNE_CLIENT, protocol=protocol)
    usual = bench.generator("plain", protocol=protocol)
    ours, theirs = [], []
    for _ in range(3):
        ours.append(load.measure(poisson(50.0), LONG, seed=1))
        theirs.append(usual.measure(poisson(50.0), LONG, seed=1))
    assert median(m.throughput_infer_per_s for m in ours) == pytest.approx(
        median(m.throughput_infer_per_s for m in theirs), rel=0.03
    )
    for quantile in ("p50_latency_us", "p99_latency_us"):
        least, usually = (
            min(getattr(m, quantile) for m in measurements) for measurements in (ours, theirs)
        )
        assert least == pytest.approx(usually, rel=0.10), quantile


def test_failing_requests_are_counted_with_the_error_of_the_model(
    bench: Bench, tmp_path: Path
) -> None:
    path = tmp_path / "inputs.json"
    steps = [[1.0] * 8, [1.0] * 8, [1.0] * 8, [-1.0] * 8]
    path.write_text(json.dumps({"data": [{"x": values} for values in steps]}))
    inputs = {"kind": "file", "file": str(path)}
    measurement = client(bench, "plain", inputs=inputs).measure(poisson(40.0), SHORT, seed=1)
    assert measurement.failed_count == pytest.approx(10, abs=2)
    assert measurement.rejected_count == 0
    assert measurement.failures[FailureReason.OTHER].count == measurement.failed_count
    assert measurement.completed_count == pytest.approx(30, abs=3)
    assert any("negative input" in warning for warning in measurement.warning_texts)


def test_inputs_that_do_not_fit_the_model_are_named(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "inputs.json"
    path.write_text('{"data": [{"z": [1.0]}]}')
    wrong = client(bench, "plain", inputs={"kind": "file", "file": str(path)})
    with pytest.raises(SpecError, match="entry 1: z is not an input"):
        wrong.measure(poisson(40.0), SHORT, seed=1)


@needs_strings
def test_every_datatype_reaches_the_model_in_batches(bench: Bench) -> None:
    shapes = {tensor.name: (3, 2) for tensor in bench.control.running_config("types").input}
    inputs = {"kind": "random", "unique": 9, "shapes": shapes}
    measurement = client(bench, "types", batch_size=2, inputs=inputs).measure(
        poisson(50.0), SHORT, seed=1
    )
    assert measurement.throughput_infer_per_s == pytest.approx(100.0, abs=10.0)
    assert measurement.failed_count == 0
    assert measurement.server is not None
    assert measurement.server.batch_stats[0][0] == 2
