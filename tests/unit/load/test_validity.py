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


def test_failures_before_the_load_do_not_count() -> None:
    refuse_failures(BEFORE, StatisticsSnapshot(success_count=900, fail_count=2), str)
    with pytest.raises(ModelFailsError, match="1 of 801"):
        refuse_failures(BEFORE, StatisticsSnapshot(success_count=900, fail_count=3), str)


def test_what_triton_drops_with_a_killed_load_generator_is_no_failure_of_the_model() -> None:
    after = StatisticsSnapshot(success_count=900, fail_count=206)
    refuse_failures(BEFORE, after, str, dropped=True)
    with pytest.raises(ModelFailsError, match="204 of 1,004 "):
        refuse_failures(BEFORE, after, lambda: "out of memory", dropped=True)


@pytest.mark.parametrize(
    ("request_s", "share", "told"),
    [(0.0009, 0.09, False), (0.0018, 0.09, True), (0.0009, 0.45, True), (0.0018, 0.45, True)],
)
def test_a_load_generator_is_told_that_takes_a_tenth_of_an_slo_or_of_its_cores(
    request_s: float, share: float, told: bool
) -> None:
    bounds = (LatencyBound(0.99, 0.5), LatencyBound(0.95, 0.010))
    assert bool([*client_cost(request_s, share, 1, bounds)]) is told
    assert [*client_cost(request_s, 0.05, 1, ())] == []


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
    assert any(said.startswith("0.12% ") for said in warnings_about(found)) is told
