"""The model's failure told from the load generator's."""

from __future__ import annotations

import pytest

from tuner.errors import ModelFailsError
from tuner.load.validity import refuse_failures
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
