"""The model's failure told from the load generator's, and what that takes itself."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from builders.measurements import latency_slo, synthetic_measurement

from tuner.errors import LoadFailedError, ModelFailsError
from tuner.load.validity import client_cost, refuse_failures, warnings_about
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.reason import ReasonKind
from tuner.server.control import StatisticsSnapshot

BEFORE = StatisticsSnapshot(success_count=100, fail_count=2)


def after(*, ok: int, failed: int = 0) -> StatisticsSnapshot:
    """The counters after a load with so many successes and failures."""
    return StatisticsSnapshot(
        success_count=BEFORE.success_count + ok, fail_count=BEFORE.fail_count + failed
    )


def test_failures_before_the_load_do_not_count() -> None:
    refuse_failures(BEFORE, after(ok=800), [], str)
    with pytest.raises(ModelFailsError, match="1 of 801"):
        refuse_failures(BEFORE, after(ok=800, failed=1), [], str)


def test_requests_dropped_with_a_killed_load_generator_are_no_failures_of_the_model() -> None:
    dropped = after(ok=800, failed=204)
    refuse_failures(BEFORE, dropped, [], str, dropped=True)
    with pytest.raises(ModelFailsError, match="204 of 1,004 "):
        refuse_failures(BEFORE, dropped, [], lambda: "out of memory", dropped=True)


def test_an_error_that_the_server_counts_as_a_success_is_a_failure_of_the_model() -> None:
    """As the Python backend's TritonError is: perf_analyzer tells one for each of its threads."""
    message = "^the model answered at least 2 of 100 requests with an error: out of paper$"
    for dropped in (False, True):
        with pytest.raises(ModelFailsError, match=message):
            refuse_failures(BEFORE, after(ok=100), ["out of paper"] * 2, str, dropped=dropped)


def test_an_error_that_was_raised_is_counted_by_the_server() -> None:
    message = "^the model failed 3 of 100 requests: out of paper$"
    with pytest.raises(ModelFailsError, match=message):
        refuse_failures(BEFORE, after(ok=97, failed=3), ["out of paper"] * 2, str)


@pytest.mark.parametrize(
    ("refusal", "counted"),
    [("[request id: 1] Exceeds maximum queue size", 0), ("Request timeout expired", 30)],
)
def test_requests_that_a_queue_refused_are_no_failure_of_the_model(
    refusal: str, counted: int
) -> None:
    """A full queue's are counted nowhere, those that timed out in it as failed."""
    counters = after(ok=3, failed=counted)
    with pytest.raises(LoadFailedError, match=f"refused requests: {re.escape(refusal)}") as caught:
        refuse_failures(BEFORE, counters, [refusal] * 4, str)
    assert not isinstance(caught.value, ModelFailsError)
    with pytest.raises(ModelFailsError, match="out of paper"):
        refuse_failures(BEFORE, counters, [refusal, "out of paper"], str)


@pytest.mark.parametrize(
    ("request_s", "share", "reported"),
    [(0.0009, 0.09, False), (0.0018, 0.09, True), (0.0009, 0.45, True), (0.0018, 0.45, True)],
)
def test_load_generator_that_takes_a_tenth_of_an_slo_or_of_its_cores_is_reported(
    request_s: float, share: float, reported: bool
) -> None:
    bounds = (latency_slo(0.99, 0.5), latency_slo(0.95, 0.010))
    assert bool([*client_cost(request_s, share, 1, bounds)]) is reported
    assert [*client_cost(request_s, 0.05, 1, ())] == []


@pytest.mark.parametrize(
    ("arrivals", "late", "reported"),
    [
        (Arrivals.RECORDING, 0.0009, False),
        (Arrivals.RECORDING, 0.0012, True),
        (Arrivals.POISSON, 0.0012, False),
    ],
)
def test_recorded_requests_that_were_sent_late_are_reported(
    arrivals: Arrivals, late: float, *, reported: bool
) -> None:
    measurement = replace(
        synthetic_measurement(50.0, 100.0), load=LoadPoint(arrivals, 100.0), late_sends=late
    )
    assert (
        any(w.kind is ReasonKind.NOT_AS_RECORDED for w in warnings_about(measurement)) is reported
    )
