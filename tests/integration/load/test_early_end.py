"""A lost measurement ends early, and a client that cannot send enough says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from builders.load_repository import CAPACITY_PER_S
from builders.measurements import latency_slo
from builders.waits import wait_until
from google.protobuf.json_format import MessageToJson

from tuner.errors import ClientLimitError
from tuner.load.client import generator
from tuner.load.generators import GENERATORS, TUNE_CLIENT, GeneratorKind
from tuner.load.validity import client_kept_up
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import EarlyEnd, Window

if TYPE_CHECKING:
    from builders.load_bench import Bench

pytestmark = [pytest.mark.integration, pytest.mark.long]

BOUND = latency_slo(share=0.99, within_s=0.1)
WINDOW = Window(duration_s=3.0, warmup_s=0.3, deadline_s=30.0, tail_s=0.25, bounds=(BOUND,))


def poisson(factor: float) -> LoadPoint:
    return LoadPoint(Arrivals.POISSON, factor * CAPACITY_PER_S)


@pytest.fixture(autouse=True)
def _worked_off(bench: Bench) -> Iterator[None]:
    yield

    def idle() -> bool:
        metrics = bench.control.metrics()
        assert metrics is not None
        return not any(metrics.values("nv_inference_pending_request_count", model="plain"))

    wait_until(idle, 60)


@pytest.mark.measuring
@pytest.mark.parametrize("kind", GENERATORS, ids=lambda kind: kind.name)
def test_an_overload_ends_early_and_is_seen_to_be_one(bench: Bench, kind: GeneratorKind) -> None:
    measurement = bench.generator("plain", kind).measure(poisson(3.0), WINDOW, seed=1)
    assert 0.4 <= measurement.duration_s < 0.8 * WINDOW.duration_s
    assert measurement.p99_latency_us > BOUND.within_s * 1e6
    assert 0.7 * CAPACITY_PER_S < measurement.throughput_infer_per_s <= 1.1 * CAPACITY_PER_S
    assert client_kept_up(measurement)
    assert any("the SLO was already missed" in warning for warning in measurement.warning_texts)


@pytest.mark.parametrize("request_s", [0.0001, 0.015], ids=["one process", "two"])
def test_a_search_whose_requests_are_all_answered_but_late_ends_early(
    request_s: float, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One at a time takes 10 ms: a server that keeps up, and that misses 12 ms all the same."""
    monkeypatch.setattr(generator, "request_cost_s", lambda *_: request_s)
    late = latency_slo(share=0.99, within_s=0.012)
    window = replace(WINDOW, duration_s=14.0, bounds=(late,), ends_early=EarlyEnd.LATE)
    measurement = bench.generator("plain", TUNE_CLIENT).measure(poisson(0.7), window, seed=1)
    assert 0.4 <= measurement.duration_s < 0.3 * window.duration_s
    assert measurement.p99_latency_us > late.within_s * 1e6
    assert any("the SLO was already missed" in warning for warning in measurement.warning_texts)


@pytest.mark.measuring
@pytest.mark.parametrize("kind", GENERATORS, ids=lambda kind: kind.name)
def test_load_within_its_slo_is_measured_in_full(bench: Bench, kind: GeneratorKind) -> None:
    measurement = bench.generator("plain", kind).measure(poisson(0.4), WINDOW, seed=1)
    assert measurement.duration_s == WINDOW.duration_s
    assert not any("certainly" in warning for warning in measurement.warning_texts)


@pytest.mark.measuring
@pytest.mark.parametrize("factor", [1.5, 3.0])
def test_an_overloaded_server_is_not_taken_for_a_slow_client(bench: Bench, factor: float) -> None:
    short = Window(duration_s=1.0, warmup_s=0.3, deadline_s=30.0, tail_s=0.2)
    measurement = bench.generator("plain").measure(poisson(factor), short, seed=1)
    assert measurement.unanswered_count > 0
    assert client_kept_up(measurement)


def test_rate_beyond_the_client_is_reported(bench: Bench) -> None:
    config = bench.control.running_config("plain")
    before = MessageToJson(config)
    config.dynamic_batching.default_queue_policy.max_queue_size = 8  # or it works for minutes
    bench.control.load("plain", MessageToJson(config), 60.0)
    hasty = Window(duration_s=0.3, warmup_s=0.1, deadline_s=6.0, tail_s=0.1)
    load = bench.generator("plain", TUNE_CLIENT)
    try:
        kept_up = client_kept_up(load.measure(poisson(600.0), hasty, seed=1))
    except ClientLimitError:  # so far behind that nothing was answered
        kept_up = False
    bench.control.load("plain", before, 60.0)
    assert not kept_up


@pytest.mark.measuring
def test_a_closed_loop_is_started_several_times(bench: Bench) -> None:
    twice = bench.generator("plain", arrivals={"kind": "closed", "restarts": 2})
    window = Window(duration_s=2.0, warmup_s=0.2, deadline_s=30.0, tail_s=0.1)
    measurement = twice.measure(LoadPoint(Arrivals.CLOSED, 3), window, seed=1)
    assert len(measurement.restarts) == 2
    assert measurement.duration_s == window.duration_s
    assert measurement.throughput_infer_per_s == pytest.approx(0.9 * CAPACITY_PER_S, rel=0.2)
