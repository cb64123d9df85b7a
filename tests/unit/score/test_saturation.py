from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders.measurements import NO_ERRORS, P99_40MS, part_of, synthetic_measurement

from tuner.measurement.measurement import Arrivals, Measurement, ServerStatistics
from tuner.reason import Reason
from tuner.score.capacity import LevelRange, saturated
from tuner.score.next_load import next_load
from tuner.score.point import judge_point
from tuner.score.saturation import Saturated

BATCHES = ServerStatistics(0, 0, 800, 100, 0.0, 0.0, 0.0, 0.0)


def look(rate: float = 40.0, in_flight: float = 45.0, seconds: float = 2.0) -> Measurement:
    return synthetic_measurement(
        in_flight,
        served=rate,
        count=round(rate * seconds),
        arrivals=Arrivals.CLOSED,
        duration_s=seconds,
    )


def test_no_more_is_sustained_than_was_answered_and_a_batch_cut_off_at_either_end() -> None:
    alone = Saturated.of(look(), [P99_40MS])
    assert (alone.in_flight, alone.answered_per_s) == (45, 40.0)
    assert alone.at_most_per_s == pytest.approx((80 + 2) / 2.0)
    batched = Saturated.of(replace(look(), models={"m": BATCHES}), [P99_40MS, NO_ERRORS])
    assert batched.at_most_per_s == pytest.approx((80 + 2 * 8) / 2.0)


@pytest.mark.parametrize(
    ("seen", "slos"),
    [
        (look(rate=10.0), [P99_40MS]),  # too few answers
        (look(rate=2000.0), [P99_40MS]),  # within 40 ms more than 45 may be in flight
        (look(), [NO_ERRORS]),  # any number may be in flight
        (replace(look(), disturbances=(Reason.of_text("others took half"),)), [P99_40MS]),
        (replace(look(), streams={"a": part_of(look()), "b": part_of(look())}), [P99_40MS]),
    ],
)
def test_a_look_that_may_show_too_little_bounds_nothing(seen: Measurement, slos: Any) -> None:
    saturation = Saturated.of(seen, slos)
    assert saturation.at_most_per_s is None
    assert saturation.answered_per_s == seen.requests_per_s


def test_more_than_it_answers_is_a_load_that_a_capacity_search_need_not_try() -> None:
    too_much = Saturated.of(look(), [P99_40MS]).too_much
    assert too_much is not None
    assert saturated(too_much)
    assert too_much.level > 41.0
    assert not too_much.passed
    passed = synthetic_measurement(32.0, 10e3)
    level = next_load([too_much, judge_point([P99_40MS], passed)], LevelRange(1.0, 1e4))
    assert level == pytest.approx(0.95 * 40.0)  # without it, three times the load
    assert Saturated.of(look(), [NO_ERRORS]).too_much is None


def test_saturation_survives_json() -> None:
    saturation = Saturated.of(replace(look(), models={"m": BATCHES}), [P99_40MS])
    assert Saturated.from_json(saturation.to_json()) == saturation
