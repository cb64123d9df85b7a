"""Requests of two lengths on a real server: their shares and latencies, and who meets whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders.load_repository import SERVICE_S, TOKEN_S

from tuner.load.setup import StreamRequests
from tuner.load.streams_load import StreamsLoad
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window
from tuner.spec.workload import RandomInputs

if TYPE_CHECKING:
    from builders.load_bench import Bench

pytestmark = [pytest.mark.integration, pytest.mark.measuring]

WINDOW = Window(duration_s=5.0, warmup_s=0.5, deadline_s=40.0, tail_s=0.3)
LOAD = LoadPoint(Arrivals.POISSON, 60.0)
LENGTHS = [{"dims": [16], "share": "70%"}, {"dims": [128], "share": "30%"}]
INPUTS = RandomInputs.model_validate({"kind": "random", "shapes": {"ids": LENGTHS}})


def load_on(bench: Bench, model: str, batch_size: int = 1, protocol: str = "grpc") -> StreamsLoad:
    return bench.streams({model: StreamRequests(model, INPUTS, batch_size)}, protocol=protocol)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_each_length_is_sent_by_its_share_and_has_separate_latency(
    bench: Bench, protocol: str
) -> None:
    measurement = load_on(bench, "texts", protocol=protocol).measure(LOAD, WINDOW, 1)
    short, long = measurement.shapes["[16]"], measurement.shapes["[128]"]
    assert measurement.due_per_s == pytest.approx(60.0)
    assert long.due_per_s / measurement.due_per_s == pytest.approx(0.3, abs=0.02)
    assert short.completed_count + long.completed_count == measurement.completed_count
    assert long.p50_latency_us - short.p50_latency_us > 0.5e6 * TOKEN_S * (128 - 16)
    assert short.p50_latency_us > 1e6 * (SERVICE_S / 10 + 16 * TOKEN_S)
    assert long.p99_latency_us > 1e6 * (SERVICE_S / 10 + 128 * TOKEN_S)


def test_unlike_lengths_never_share_a_batch(bench: Bench) -> None:
    measurement = load_on(bench, "texts").measure(LOAD, WINDOW, 1)
    assert measurement.failed_count == 0
    assert measurement.server is not None
    assert measurement.server.mean_batch_size > 1.0


def test_a_ragged_model_with_batch_input_has_them_share_one(bench: Bench) -> None:
    """It fails each batch of unlike lengths, so that these can be counted."""
    measurement = load_on(bench, "ragged").measure(LOAD, WINDOW, 1)
    assert measurement.failed_count > 50
    assert all(shape.failed_count for shape in measurement.shapes.values())
    assert measurement.completed_count > 0


def test_all_inferences_of_one_request_have_one_length(bench: Bench) -> None:
    measurement = load_on(bench, "texts", batch_size=3).measure(
        LoadPoint(Arrivals.POISSON, 20.0), WINDOW, 1
    )
    assert measurement.failed_count == 0
    assert measurement.throughput_infer_per_s == pytest.approx(60.0, rel=0.1)
    assert set(measurement.shapes) == {"[16]", "[128]"}


def test_clients_that_wait_for_answers_send_both_lengths(bench: Bench) -> None:
    measurement = load_on(bench, "texts").measure(LoadPoint(Arrivals.CLOSED, 2.0), WINDOW, 1)
    long = measurement.shapes["[128]"].completed_count
    assert long / measurement.completed_count == pytest.approx(0.3, abs=0.02)
    assert len(measurement.restarts) == 0


def test_probes_use_both_lengths(bench: Bench) -> None:
    load, notes = load_on(bench, "texts"), list[str]()
    (first_calls,) = load.await_first_answers(30.0, notes.append)
    assert not first_calls.slow
    (answers,) = load.answers().values()
    widths = [next(iter(answer.outputs.values())).shape[1] for answer in answers.alone]
    assert sorted(widths) == [16] * 12 + [128] * 4
