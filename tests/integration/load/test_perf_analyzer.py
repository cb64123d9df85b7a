"""Real load on a real server. Latencies are asserted loosely: test machines are busy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from builders.load_repository import CAPACITY_PER_S, SERVICE_S
from builders.strings import needs_strings
from builders.waits import wait_until

from tuner.errors import LoadFailedError, SpecError
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window

if TYPE_CHECKING:
    from builders.load_bench import Bench

pytestmark = [pytest.mark.integration, pytest.mark.long]

SHORT = Window(duration_s=1.0, warmup_s=0.3, deadline_s=30.0, tail_s=0.2)
SERVICE_US = SERVICE_S * 1e6


def poisson(rate: float) -> LoadPoint:
    return LoadPoint(Arrivals.POISSON, rate)


def closed(concurrency: float) -> LoadPoint:
    return LoadPoint(Arrivals.CLOSED, concurrency)


@pytest.fixture(autouse=True)
def _leaves_nothing_behind(bench: Bench) -> Iterator[None]:
    """Every run removes its own directory; only input files stay, for the next run."""
    yield
    assert not list(bench.directory.glob("load-*"))
    metrics = bench.control.metrics()
    assert metrics is not None
    assert not any(metrics.values("nv_inference_pending_request_count"))


@pytest.mark.measuring
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_below_saturation_everything_is_answered(bench: Bench, protocol: str) -> None:
    generator = bench.generator("plain", protocol=protocol)
    measurement = generator.measure(poisson(40.0), SHORT, seed=1)
    # Answers that fall into the window: a stall of 0.1 s before it moves four into it.
    assert measurement.throughput_infer_per_s == pytest.approx(40.0, abs=6.0)
    assert measurement.sent_per_s == pytest.approx(40.0, abs=1.0)
    assert SERVICE_US < measurement.p50_latency_us < 3 * SERVICE_US
    assert measurement.latencies_us is not None
    assert measurement.latencies_us.size == 40
    assert measurement.unanswered_count == 0
    assert measurement.server is not None
    assert measurement.server.success_count == pytest.approx(40, abs=25)
    assert measurement.server.compute_infer_us > SERVICE_US
    assert measurement.host.cpu_percent is not None


@pytest.mark.measuring
def test_a_closed_loop_keeps_its_concurrency(bench: Bench) -> None:
    measurement = bench.generator("plain").measure(closed(3), SHORT, seed=1)
    assert 0.6 * CAPACITY_PER_S < measurement.throughput_infer_per_s <= CAPACITY_PER_S
    assert measurement.mean_in_flight == pytest.approx(3.0, abs=0.3)
    assert measurement.p50_latency_us == pytest.approx(
        3e6 / measurement.throughput_infer_per_s, rel=0.15
    )  # Little's law
    assert measurement.late_sends is None


@pytest.mark.measuring
def test_overload_and_a_remaining_queue_are_reported(bench: Bench) -> None:
    """Twice the capacity: half of what is due by the end is still waiting."""
    generator = bench.generator("plain")
    measurement = generator.measure(poisson(2 * CAPACITY_PER_S), SHORT, seed=1)
    assert measurement.throughput_infer_per_s <= CAPACITY_PER_S
    assert measurement.unanswered_count > 0.2 * 2 * CAPACITY_PER_S
    assert measurement.p99_latency_us > 0.5e6
    assert measurement.host.pending_requests_max is not None
    assert measurement.host.pending_requests_max > 30
    assert any("lower bounds" in warning for warning in measurement.warning_texts)
    assert measurement.backlog  # nobody batches, so nobody drops what was cancelled
    wait_until(lambda: not _waiting(bench), 30)
    after = generator.measure(poisson(20.0), SHORT, seed=1)
    assert not after.backlog
    assert after.p50_latency_us < 3 * SERVICE_US


def _waiting(bench: Bench) -> bool:
    metrics = bench.control.metrics()
    assert metrics is not None
    return any(metrics.values("nv_inference_pending_request_count", model="plain"))


def test_failing_request_reports_the_error_of_the_model(bench: Bench, tmp_path: Path) -> None:
    values = [[1] * 8] * 20 + [[-1] * 8]  # of floats: perf_analyzer alone refuses these
    path = tmp_path / "inputs.json"
    path.write_text(json.dumps({"data": [{"x": v} for v in values]}))
    generator = bench.generator("plain", inputs={"kind": "file", "file": str(path)})
    with pytest.raises(LoadFailedError, match="negative input"):
        generator.measure(poisson(40.0), SHORT, seed=1)


def test_inputs_that_do_not_fit_the_model_are_named(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "inputs.json"
    path.write_text('{"data": [{"z": [1.0]}]}')
    generator = bench.generator("plain", inputs={"kind": "file", "file": str(path)})
    with pytest.raises(SpecError, match="entry 1: z is not an input"):
        generator.measure(poisson(40.0), SHORT, seed=1)


def test_a_rate_too_low_for_the_window_says_so(bench: Bench) -> None:
    """perf_analyzer then waits for ever for its own threads: it must not be waited for."""
    window = Window(duration_s=0.2, warmup_s=0.0, deadline_s=30.0, tail_s=0.1)
    with pytest.raises(LoadFailedError, match="No valid requests"):
        bench.generator("plain").measure(poisson(0.1), window, seed=1)


@needs_strings
@pytest.mark.measuring
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_every_datatype_reaches_the_model(bench: Bench, protocol: str) -> None:
    shapes = {tensor.name: (3, 2) for tensor in bench.control.running_config("types").input}
    generator = bench.generator(
        "types", protocol=protocol, inputs={"kind": "random", "unique": 9, "shapes": shapes}
    )
    measurement = generator.measure(poisson(50.0), SHORT, seed=1)
    assert measurement.completed_count > 40
    assert measurement.failed_count == 0
