from __future__ import annotations

from dataclasses import replace

import pytest
from builders.spaces import USUAL, spec_of

from tuner.search.budget import Progress, SearchLimits, StopReason

GOING = Progress(trials=10, failed=0, elapsed_s=10.0)
LIMITS = SearchLimits(trials=40, time_s=60.0, max_failed=0.5)


def test_a_search_within_its_limits_goes_on() -> None:
    assert LIMITS(GOING) is None


@pytest.mark.parametrize(
    ("progress", "reason"),
    [
        (replace(GOING, trials=40), StopReason.TRIALS),
        (replace(GOING, elapsed_s=60.0), StopReason.TIME),
        (replace(GOING, failed=6), StopReason.TOO_MANY_FAILED),
    ],
)
def test_each_limit_stops_it(progress: Progress, reason: StopReason) -> None:
    assert LIMITS(progress) is reason


def test_half_of_the_trials_may_fail() -> None:
    assert LIMITS(replace(GOING, failed=5)) is None


def test_the_first_failures_say_nothing_about_the_rest() -> None:
    assert LIMITS(replace(GOING, trials=3, failed=3)) is None
    assert LIMITS(replace(GOING, trials=4, failed=4)) is StopReason.TOO_MANY_FAILED


def test_too_many_failures_come_before_every_other_reason() -> None:
    at_the_end = Progress(trials=40, failed=30, elapsed_s=99.0)
    assert LIMITS(at_the_end) is StopReason.TOO_MANY_FAILED


def test_nothing_but_failures_ends_a_search_before_the_current_config() -> None:
    late = Progress(trials=1, failed=0, elapsed_s=99.0, begun=False)
    assert LIMITS(late) is None
    assert LIMITS(replace(late, begun=True)) is StopReason.TIME
    assert LIMITS(replace(late, trials=4, failed=4)) is StopReason.TOO_MANY_FAILED


def test_without_limits_only_the_trials_count() -> None:
    long = Progress(trials=39, failed=0, elapsed_s=1e6)
    assert SearchLimits(trials=40)(long) is None


def test_the_limits_come_from_the_spec() -> None:
    spec = spec_of(
        USUAL,
        budget={"trials": 12, "time": "20m", "max_failed": "25%"},
    )
    assert SearchLimits.of(spec) == SearchLimits(trials=12, time_s=1200.0, max_failed=0.25)


def test_each_reason_is_a_sentence() -> None:
    assert all(r.value[0].isupper() and r.value.endswith(".") for r in StopReason)
