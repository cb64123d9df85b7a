"""Two streams on two real models: one clock, one sampler, each stream's own figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders.load_repository import SERVICE_S
from builders.measurements import latency_slo
from google.protobuf.json_format import MessageToJson

from tuner.load.generators import PERF_ANALYZER, TUNE_CLIENT, GeneratorKind
from tuner.load.setup import StreamRequests
from tuner.load.streams_load import StreamsLoad
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window
from tuner.spec.workload import RandomInputs

if TYPE_CHECKING:
    from builders.load_bench import Bench

pytestmark = [pytest.mark.integration, pytest.mark.measuring]

#: The model ``plain`` takes 10 ms and sustains 100/s, ``image`` answers at once.
BOUNDS = (latency_slo(0.9, 0.060, "steady"), latency_slo(0.9, 0.060, "quick"))
WINDOW = Window(duration_s=4.0, warmup_s=0.5, deadline_s=40.0, tail_s=0.3, bounds=BOUNDS)


def two_streams(bench: Bench) -> StreamsLoad:
    """75 % and 25 % of the load, and a background on a third model."""
    return bench.streams(
        {
            "steady": StreamRequests("plain", share=0.75),
            "quick": StreamRequests("image", RandomInputs(kind="random", unique=4), share=0.25),
            "beside": StreamRequests("cached", rate_per_s=5.0),
        }
    )


def test_both_streams_get_their_rates_and_latencies_and_the_sums_are_consistent(
    bench: Bench,
) -> None:
    measurement = two_streams(bench).measure(LoadPoint(Arrivals.POISSON, 60.0), WINDOW, 1)
    steady, quick, beside = (measurement.streams[name] for name in ("steady", "quick", "beside"))
    assert (steady.due_per_s, quick.due_per_s, beside.due_per_s) == (45.0, 15.0, 5.0)
    assert steady.p50_latency_us >= 1e6 * SERVICE_S
    assert quick.p50_latency_us < steady.p50_latency_us
    assert measurement.due_per_s == 60.0
    assert measurement.completed_count == steady.completed_count + quick.completed_count
    assert measurement.throughput_infer_per_s == pytest.approx(60.0, rel=0.05)
    assert measurement.failed_count == 0
    # counted by the server meanwhile, a sample apart at each end
    for label, figures in (("plain", steady), ("image", quick), ("cached", beside)):
        assert figures.server == measurement.models[label]
        counted = measurement.models[label].success_count
        assert counted == pytest.approx(figures.completed_count, rel=0.25, abs=5)
    assert measurement.models["plain"].compute_infer_us >= 0.95e6 * SERVICE_S
    assert measurement.server is None


def test_an_overload_of_one_model_is_that_streams_alone_and_ends_early(bench: Bench) -> None:
    """225/s for a model that sustains 100/s, and 75/s for one that does not mind."""
    measurement = two_streams(bench).measure(LoadPoint(Arrivals.POISSON, 300.0), WINDOW, 1)
    assert measurement.streams["steady"].within_bounds is False
    assert measurement.duration_s < WINDOW.duration_s
    assert (
        measurement.streams["quick"].p50_latency_us
        < 60e3
        < measurement.streams["steady"].p90_latency_us
    )


def test_every_stream_is_probed_alone_and_for_its_responses(bench: Bench) -> None:
    load = two_streams(bench)
    alone_s = load.seconds_alone(30.0)
    assert alone_s is not None
    assert set(alone_s) == {"steady", "quick", "beside", ""}
    assert alone_s["steady"] >= SERVICE_S
    assert alone_s[""] == pytest.approx(0.75 * alone_s["steady"] + 0.25 * alone_s["quick"])
    alone = {name: len(answers.alone) for name, answers in load.answers().items()}
    assert alone == {"steady": 16, "quick": 4, "beside": 16}
    looked = load.measure(LoadPoint(Arrivals.CLOSED, 4), Window(1.0, 0.3, 30.0), 1)
    steady, quick = looked.streams["steady"], looked.streams["quick"]
    assert steady.completed_count == pytest.approx(3.0 * quick.completed_count, rel=0.2)


@pytest.mark.parametrize("kind", [PERF_ANALYZER, TUNE_CLIENT], ids=lambda kind: kind.name)
def test_single_named_stream_is_compared_with_its_bound(bench: Bench, kind: GeneratorKind) -> None:
    """By either generator; an overload ends early by it."""
    load = bench.streams({"steady": StreamRequests("plain")}, kind)
    assert any(load.setup.at_rest() for _ in range(30))  # what another test left behind
    measurement = load.measure(LoadPoint(Arrivals.POISSON, 300.0), WINDOW, 1)
    figures = measurement.of("steady")
    assert figures is not None
    assert figures.p90_latency_us == measurement.p90_latency_us
    assert measurement.within_bounds is figures.within_bounds is False
    assert measurement.duration_s < WINDOW.duration_s


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_stream_of_higher_priority_is_served_before_the_others_under_overload(
    bench: Bench, protocol: str
) -> None:
    """130/s for a model that sustains 100/s: only the first to ask waits for the model itself."""
    config = bench.control.running_config("plain")
    before = MessageToJson(config)
    config.max_batch_size = 1
    config.dynamic_batching.priority_levels = config.dynamic_batching.default_priority_level = 2
    bench.control.load("plain", MessageToJson(config), 60.0)
    requests = {
        "patient": StreamRequests("plain", share=0.8, priority=2),
        "urgent": StreamRequests("plain", share=0.2, priority=1),
    }
    load = bench.streams(requests, protocol=protocol)
    try:
        window = Window(duration_s=2.5, warmup_s=0.5, deadline_s=40.0, tail_s=0.2)
        measurement = load.measure(LoadPoint(Arrivals.POISSON, 130.0), window, 1)
    finally:
        bench.control.load("plain", before, 60.0)
    urgent, patient = (measurement.streams[name] for name in ("urgent", "patient"))
    assert 3.0 * urgent.p90_latency_us < patient.p50_latency_us
