"""The model's failure told from the load generator's, and what that takes itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.measurements import synthetic_measurement

from tuner.errors import ModelFailsError
from tuner.load.validity import client_cost, refuse_failures, warnings_about
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import LatencyBound
from tuner.server.control import StatisticsSnapshot

BEFORE = StatisticsSnapshot(success_count=100, fail_count=2)


def test_requests_that_the_model_failed_are_not_the_load_generators_fault() -> None:
    after = StatisticsSnapshot(success_count=104, fail_count=68)
    with pytest.raises(ModelFailsError, match="failed 66 of 70 requests: AssertionError: one"):
        refuse_failures(BEFORE, after, lambda: "AssertionError: one at a time")
    with pytest.raises(ModelFailsError, match="it gave no reason"):
        refuse_failures(BEFORE, after, str)


def test_failures_before_the_load_do_not_count() -> None:
    refuse_failures(BEFORE, StatisticsSnapshot(success_count=900, fail_count=2), str)
    with pytest.raises(ModelFailsError, match="failed 1 of 801 requests"):
        refuse_failures(BEFORE, StatisticsSnapshot(success_count=900, fail_count=3), str)


def test_what_triton_drops_with_a_killed_load_generator_is_no_failure_of_the_model() -> None:
    after = StatisticsSnapshot(success_count=900, fail_count=206)
    refuse_failures(BEFORE, after, str, dropped=True)
    with pytest.raises(ModelFailsError, match="204 of 1004 requests: out of memory"):
        refuse_failures(BEFORE, after, lambda: "out of memory", dropped=True)


@pytest.mark.parametrize(
    ("request_s", "share", "cores", "told"),
    [
        (0.0009, 0.09, 1, ""),
        (0.0018, 0.09, 1, "18% of the tightest latency SLO."),
        (0.0009, 0.45, 2, "45% of its 2 cores."),
        (0.0018, 0.45, 1, "18% of the tightest latency SLO and 45% of its core."),
    ],
)
def test_a_load_generator_is_told_that_takes_a_tenth_of_an_slo_or_of_its_cores(
    request_s: float, share: float, cores: int, told: str
) -> None:
    bounds = (LatencyBound(0.99, 0.5), LatencyBound(0.95, 0.010))
    found = [*client_cost(request_s, share, cores, bounds)]
    if told:
        ms = f"{1e3 * request_s:g} ms"
        told = f"The load generator itself took {ms} of CPU for a request: {told}"
    assert found == ([told] if told else [])
    assert [*client_cost(request_s, 0.05, cores, ())] == []


@pytest.mark.parametrize(
    ("arrivals", "late", "told"),
    [
        (Arrivals.RECORDING, 0.0009, False),
        (Arrivals.RECORDING, 0.0012, True),
        (Arrivals.POISSON, 0.0012, False),
    ],
)
def test_recorded_requests_that_were_sent_late_are_told(
    arrivals: Arrivals, late: float, *, told: bool
) -> None:
    found = replace(
        synthetic_measurement(50.0, 100.0), load=LoadPoint(arrivals, 100.0), late_sends=late
    )
    said = "0.12% of the recorded requests were sent over 1 ms late." in warnings_about(found)
    assert said is told
