"""What a fit reads from finished trials beside their loads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.candidates import candidate_of
from builders.measurements import synthetic_measurement
from builders.serving import served_one

from tuner.measurement.measurement import HostUse
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.twin.observation import Asked, Setting, observation, with_measured
from tuner.twin.system import Network, Scheduler

SETTING = Setting(served_one('name: "m" max_batch_size: 8'), (Asked(model="m"),))
NETWORK = Network((Scheduler(),))
CACHED = 1 << 20


def trial(host: HostUse, cache_bytes: int | None = None) -> Trial:
    measurement = replace(synthetic_measurement(32), host=host)
    return Trial(
        0, candidate_of({}, cache_bytes), TrialState.MEASURED, (Point(measurement, (), None),)
    )


def test_cores_and_cache_entries_are_what_the_trials_show() -> None:
    cached = trial(HostUse(cores=2, cache_entries=100, cache_utilization=0.5), CACHED)
    found = with_measured(SETTING, [trial(HostUse()), cached])
    assert (found.cores, found.response_bytes) == (2, 5243)


def test_the_gpus_are_those_the_server_sees() -> None:
    assert with_measured(SETTING, [trial(HostUse()), trial(HostUse(gpus=4))]).devices == 4


def test_without_trials_that_show_it_the_setting_stays() -> None:
    known = replace(SETTING, cores=4, response_bytes=100)
    assert with_measured(known, [trial(HostUse())]) == known


def test_busy_cores_are_those_of_server_and_client() -> None:
    host = HostUse(cpu_percent=80.0, other_cpu_percent=5.0)
    measurement = replace(synthetic_measurement(32), host=host)
    shared = observation(0, NETWORK, measurement, replace(SETTING, cores=2))
    assert shared.busy_cores == pytest.approx(1.5)
    assert observation(0, NETWORK, measurement, SETTING).busy_cores is None
