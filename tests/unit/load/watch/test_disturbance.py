from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders.measurements import synthetic_measurement

from tuner.load.validity import warnings_about
from tuner.load.watch.machine import disturbances, taken_percent
from tuner.measurement.measurement import HostUse, Measurement
from tuner.measurement.window import LatencyBound

TIGHT, SLOW = LatencyBound(0.99, 0.04), LatencyBound(0.95, 2.0)


def measured(**host: Any) -> Measurement:
    return replace(synthetic_measurement(), host=HostUse(**host))


@pytest.mark.parametrize(
    ("bound", "host", "said"),
    [
        (TIGHT, {}, []),
        (TIGHT, {"cpu_percent": 100.0, "load_1m": 40.0, "governor": "powersave"}, []),
        (TIGHT, {"other_cpu_percent": 5.0, "stalled_percent": 0.25}, []),
        (TIGHT, {"stolen_cpu_percent": 50.0}, []),
        (TIGHT, {"stalled_percent": 0.26}, ["still for 0.26% of the time, 5 ms and more"]),
        (SLOW, {"stalled_percent": 1.2}, []),
        (SLOW, {"stalled_percent": 1.3}, ["200 ms and more at a time (up to 1.3% is quiet)"]),
        (TIGHT, {"other_cpu_percent": 5.3}, ["Other processes took 5.3%"]),
        (TIGHT, {"other_cpu_percent": 48.6, "stalled_percent": 3.0}, ["3% of", "took 49%"]),
    ],
)
def test_stalls_are_held_to_what_the_slo_lets_be_late_and_others_to_a_share(
    bound: LatencyBound, host: dict[str, Any], said: list[str]
) -> None:
    found = disturbances(measured(**host), bound)
    assert len(found) == len(said)
    assert all(words in sentence for words, sentence in zip(said, found, strict=True))


def test_a_gpu_that_its_own_load_heats_is_told_and_disturbs_nothing() -> None:
    hot = measured(gpu_throttled=True, gpu_clock_mhz=1200.0)
    assert disturbances(hot) == ()
    assert any("down to 1200 MHz" in sentence for sentence in warnings_about(hot))


def test_what_the_server_could_not_have_is_one_number_for_both() -> None:
    assert taken_percent(measured(other_cpu_percent=13.0, stalled_percent=2.0)) == 15.0
    assert taken_percent(measured()) == 0.0
