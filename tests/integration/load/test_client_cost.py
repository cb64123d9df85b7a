"""What real clients send, images of 600 kB and texts, and what that takes the load generator."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builders.measurements import latency_slo

from tuner.load.client import generator
from tuner.load.client.cost import request_cost_s
from tuner.load.generators import TUNE_CLIENT
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.spec.slo import Slo
from tuner.spec.workload import Protocol

if TYPE_CHECKING:
    from builders.load_bench import Bench

pytestmark = [pytest.mark.integration, pytest.mark.long]

#: Nothing is late by such a bound, and no load generator takes a tenth of it.
WIDE = latency_slo(share=0.99, within_s=30.0)
LOAD = LoadPoint(Arrivals.POISSON, 40.0)
IMAGES = {"kind": "random", "unique": 4}
TEXTS = {"kind": "random", "unique": 20, "string_length": 4000}
SENT = pytest.mark.parametrize(("model", "inputs"), [("image", IMAGES), ("words", TEXTS)])


def window(bound: Slo) -> Window:
    return Window(duration_s=2.0, warmup_s=0.2, deadline_s=60.0, tail_s=2.0, bounds=(bound,))


def measured(bench: Bench, model: str, inputs: Any, bound: Slo = WIDE) -> Measurement:
    load = bench.generator(model, TUNE_CLIENT, inputs=inputs, protocol="grpc")
    return load.measure(LOAD, window(bound), seed=1)


@SENT
def test_generator_time_per_request_is_reported_from_a_tenth_of_the_slo(
    bench: Bench, model: str, inputs: Any
) -> None:
    measurement = measured(bench, model, inputs, latency_slo(share=0.99, within_s=0.0005))
    (message,) = [w for w in measurement.warning_texts if "of CPU for a request" in w]
    assert "% of the tightest latency SLO" in message
    assert measurement.failed_count == 0


@SENT
def test_several_processes_send_what_one_would_and_when_it_is_due(
    bench: Bench, model: str, inputs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a request took 45 ms of a core: then 40/s need three processes, or all cores."""
    started: list[int] = []
    real = generator.split_over

    def split_over(job: Any, count: int) -> Any:
        started.append(count)
        return real(job, count)

    monkeypatch.setattr(generator, "split_over", split_over)
    one = measured(bench, model, inputs)
    monkeypatch.setattr(generator, "request_cost_s", lambda *_: 0.045)
    several = measured(bench, model, inputs)
    assert started == [1, min(3, len(os.sched_getaffinity(0)))]
    assert several.due_per_s == one.due_per_s
    for measurement in (one, several):
        assert measurement.failed_count == measurement.unanswered_count == 0
        assert measurement.by_arrival_us is not None
        assert measurement.due_per_s is not None
        assert measurement.by_arrival_us.size == round(
            measurement.due_per_s * measurement.duration_s
        )
        assert np.isfinite(measurement.by_arrival_us).all()


@pytest.mark.parametrize("protocol", Protocol)
def test_a_request_that_is_a_hundred_times_as_large_takes_more(protocol: Protocol) -> None:
    small, large = (request_cost_s(s, protocol, (), os.environ) for s in (100_000, 10_000_000))
    assert 0.0 < small < large < 1.0
