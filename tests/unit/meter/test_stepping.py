"""Where a trial begins when its first load is too much for a result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from builders.measurements import synthetic_measurement

from tuner.errors import ClientLimitError, LoadFailedError
from tuner.meter.evaluate import ClientCeiling, MeasureOrLower
from tuner.score.capacity import LevelRange, NoResult

LEVELS = LevelRange(0.1, 1e5)


def drowning(above: float, levels: list[float]) -> Callable[[float], float]:
    """Gives its level as the result, and none above ``above``."""

    def measure(level: float) -> float:
        levels.append(level)
        if level > above:
            raise LoadFailedError(f"no results at {level:g}/s")
        return level

    return measure


def test_a_load_that_gives_no_result_is_halved_four_times_at_the_most() -> None:
    levels: list[float] = []
    above = MeasureOrLower(drowning(100.0, levels), LEVELS)
    assert above.result(1600.0) == 100.0
    assert levels == [1600.0, 800.0, 400.0, 200.0, 100.0]
    assert above.no_result_at == [NoResult(n) for n in (1600.0, 800.0, 400.0, 200.0)]
    assert above.levels == LEVELS
    levels.clear()
    with pytest.raises(LoadFailedError, match="101/s"):
        MeasureOrLower(drowning(100.0, levels), LEVELS).result(1616.0)
    assert len(levels) == 5


def test_lowest_load_is_not_repeated() -> None:
    levels: list[float] = []
    with pytest.raises(LoadFailedError, match="60/s"):
        MeasureOrLower(drowning(1.0, levels), LevelRange(60.0, 1e5)).result(100.0)
    assert levels == [100.0, 60.0]


def test_first_load_is_within_the_range() -> None:
    levels: list[float] = []
    assert (
        MeasureOrLower(drowning(64.0, levels), LevelRange(1, 64, integer=True)).result(200.4)
        == 64.0
    )
    assert levels == [64.0]


def test_search_requests_no_load_beyond_the_client() -> None:
    limit = ClientLimitError("it could not keep up", sent_per_s=1000.0)

    def measure(level: float) -> float:
        if level > 950.0:
            raise limit
        return level

    above = MeasureOrLower(measure, LEVELS)
    assert above.result(5000.0) == 900.0  # nine tenths of what it sent
    assert (above.levels.lowest, above.levels.highest) == (0.1, 900.0)
    assert above.levels.limited
    assert above.no_result_at == []  # it says nothing about the config


def test_a_load_is_lowered_by_what_is_known_of_the_client() -> None:
    for sent_per_s, lower in ((500.0, 450.0), (975.0, 877.5), (None, 500.0)):
        error = ClientLimitError("behind", sent_per_s=sent_per_s)
        assert MeasureOrLower(drowning(1.0, []), LEVELS).lower(error, 1000.0) == lower


def test_a_resumed_run_knows_what_could_be_sent() -> None:
    kept = [synthetic_measurement(900.0)]
    behind = replace(synthetic_measurement(2000.0), sent_per_s=1200.0)
    assert ClientCeiling.seen(kept).most == math.inf
    assert ClientCeiling.seen([*kept, behind]).most == 0.9 * 1200.0
    slow_config = replace(synthetic_measurement(800.0), sent_per_s=500.0)
    assert (
        ClientCeiling.seen([*kept, slow_config]).most == math.inf
    )  # others were sent more than that
