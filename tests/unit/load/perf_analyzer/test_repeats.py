"""Who is told that perf_analyzer went round its list of inputs: the user of a response cache."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.measurements import synthetic_measurement

from tuner.load.perf_analyzer.generator import warn_of_repeats
from tuner.load.traffic.inputs import RunInputs
from tuner.measurement.measurement import ServerStatistics
from tuner.measurement.window import Window


@pytest.mark.parametrize(
    ("steps", "misses", "warned"), [(150, 150, True), (150, 0, False), (5000, 150, False)]
)
def test_inputs_that_come_back_matter_to_a_cache_only(
    steps: int, misses: int, warned: bool
) -> None:
    statistics = ServerStatistics(300, 0, 300, 300, 1.0, 1.0, 1.0, 1.0, cache_miss_count=misses)
    measured = replace(synthetic_measurement(level=100.0), models={"m": statistics})
    given = RunInputs((), sampled_count=steps)
    assert bool(warn_of_repeats(given, measured, Window(3.0, 0.0, 30.0))) is warned
