from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from synthetic import synthetic_measurement

from tuner.load.watch.disturbance import OTHER_CPU_PERCENT, STOLEN_CPU_PERCENT, disturbances
from tuner.measurement.measurement import HostUse, Measurement


def measured(**host: Any) -> Measurement:
    return replace(synthetic_measurement(), host=HostUse(**host))


@pytest.mark.parametrize(
    "host",
    [
        {},
        {"cpu_percent": 100.0, "load_1m": 40.0, "governor": "powersave"},
        {"other_cpu_percent": OTHER_CPU_PERCENT, "stolen_cpu_percent": STOLEN_CPU_PERCENT},
        {"gpu_throttled": False, "gpu_clock_mhz": 300.0},
    ],
)
def test_nothing_to_say(host: dict[str, Any]) -> None:
    assert disturbances(measured(**host)) == ()


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ({"other_cpu_percent": 48.6}, "Other processes took 49 %"),
        ({"other_cpu_percent": 5.3}, "Other processes took 5.3 %"),
        ({"stolen_cpu_percent": 7.25}, "The hypervisor gave 7.2 %"),
        ({"gpu_throttled": True, "gpu_clock_mhz": 1200.0}, "down to 1200 MHz"),
        ({"gpu_throttled": True}, "held down by heat or power meanwhile."),
    ],
)
def test_each_disturbance_is_one_sentence(host: dict[str, Any], words: str) -> None:
    (sentence,) = disturbances(measured(**host))
    assert words in sentence
    assert sentence.endswith(".")


def test_several_at_once() -> None:
    assert len(disturbances(measured(other_cpu_percent=50.0, stolen_cpu_percent=50.0))) == 2
