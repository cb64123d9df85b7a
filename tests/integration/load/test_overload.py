"""Overloads of the emulated accelerator: what its queue does with them, bounded and not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from builders.load_bench import Bench
from builders.model_files import copy_examples
from google.protobuf.json_format import MessageToJson

from tuner.load.generators import PERF_ANALYZER, TUNE_CLIENT
from tuner.load.probes.overload import Overload, overload_of, overload_window
from tuner.measurement.measurement import Arrivals, FailureReason, LoadPoint, Measurement
from tuner.server.binaries import Installation, tritonserver
from tuner.server.control import Control
from tuner.space.draft_queue import queue_timeout_us
from tuner.spec.slo import Slo
from tuner.triton.local import LocalLauncher

pytestmark = [pytest.mark.integration, pytest.mark.measuring]

MODEL = "emulated-accelerator"
SLO = Slo.parse("p99_latency <= 150ms")
#: One request at a time takes 11.25 ms and what the machine adds: 80 to 88 a second at the most.
DEVICE_MS = "10"
CAPACITY = 80.0


@pytest.fixture(scope="module")
def bench(program: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    directory = tmp_path_factory.mktemp("overload")
    repository = directory / "repository"
    copy_examples(repository, MODEL)
    with tritonserver(None, os.environ) as installation:
        launcher = LocalLauncher(installation, repository)
        with (
            launcher.launch((), directory / "server.log") as server,
            Control(server.endpoints, timeout_s=3.0) as control,
        ):
            yield Bench(server, control, program, directory)


def probed(bench: Bench, timeout_us: int = 0) -> tuple[Measurement, Overload]:
    """A probe of the model, one request at a time."""
    bench.control.load(MODEL, None, 60.0)
    config = bench.control.running_config(MODEL)
    config.parameters["exclusive_base_ms"].string_value = DEVICE_MS
    if timeout_us:
        config.max_batch_size = 1
        policy = config.dynamic_batching.default_queue_policy
        policy.default_timeout_microseconds = timeout_us
    bench.control.load(MODEL, MessageToJson(config), 60.0)
    window = overload_window(SLO)
    load = LoadPoint(Arrivals.STEP, CAPACITY)
    generator = bench.generator(MODEL, TUNE_CLIENT if timeout_us else PERF_ANALYZER)
    measurement = generator.measure(load, window, seed=1)
    overload = overload_of(measurement, window, SLO)
    return measurement, replace(overload, lone=generator.ask_alone("", 10.0))


def test_a_queue_without_end_recovers_once_the_backlog_is_worked_off(bench: Bench) -> None:
    measurement, overload = probed(bench)
    assert Path(measurement.command[0]).name == "perf_analyzer"
    assert measurement.sent_per_s == pytest.approx(1.2 * CAPACITY, rel=0.03)
    assert overload.served_per_s < 0.97 * overload.asked_per_s
    assert overload.p99_latency_us > SLO.bound
    assert overload.late_share > 0.1
    assert overload.rejected_share == 0.0
    assert (overload.failures, overload.lone) == ({}, None)
    assert overload.recovered_after_s is not None
    assert 0.0 < overload.recovered_after_s <= 3.5
    calm = [
        s.due_per_s for s in overload.slices if s.start_s < 0 or s.start_s >= overload.overload_s
    ]
    assert sum(calm) / len(calm) == pytest.approx(0.8 * CAPACITY, rel=0.1)


def test_the_drafted_queue_policy_keeps_the_slo_of_the_answered_and_ends_with_the_overload(
    bench: Bench,
) -> None:
    timeout_us = queue_timeout_us(SLO)
    measurement, overload = probed(bench, timeout_us)
    metrics = bench.control.metrics()
    assert metrics is not None
    counted = metrics.values("nv_inference_request_failure", model=MODEL, reason="REJECTED")
    assert sum(counted) >= measurement.rejected_count  # of the whole load, not of its window
    assert "tuner.load.client.process" in measurement.command
    assert overload.p99_latency_us < SLO.bound
    assert overload.rejected_share == pytest.approx(overload.late_share, abs=0.01)
    assert 0.01 < overload.rejected_share < 0.4
    assert all((s.p99_latency_us or 0.0) < SLO.bound for s in overload.slices)
    assert sum(s.refused_per_s for s in overload.slices if 0 <= s.start_s < overload.overload_s) > 0
    assert {*overload.failures} == {FailureReason.TIMED_OUT}
    timed_out = overload.failures[FailureReason.TIMED_OUT]
    assert timed_out.count == measurement.rejected_count
    assert timeout_us < timed_out.p50_told_us <= timed_out.p99_told_us < 1e6
    assert overload.lone is not None
    assert (overload.lone.asked, overload.lone.served) == (30, 30)
