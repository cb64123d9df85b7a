"""The noise of an emulated bench, known by construction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import EmulatedBench

from tuner.load.measurement import Measurement
from tuner.steps import noise
from tuner.steps.events import Silent
from tuner.steps.job import Job, Request, prepare
from tuner.steps.noise import noise_on, too_fine

SPEC = Path(__file__).parents[3] / "search_spaces" / "quickstart.yaml"


class NoisyBench(EmulatedBench):
    """Each server has a capacity of its own about 100/s; each measurement its own p99."""

    def __init__(self, job: Job, servers_cv: float, p99_cv: float) -> None:
        super().__init__({job.space.current: 100.0}, weather=0.0, slos=job.spec.slo, alone_s=0.006)
        self._luck = np.random.default_rng(4)
        self._servers_cv, self._p99_cv = servers_cv, p99_cv
        self.disturbances: tuple[str, ...] = ()

    @property
    def fresh_servers(self) -> int:
        return sum(fresh for _, fresh in self.deployed)

    def luck(self) -> float:
        return float(np.exp(self._servers_cv * self._luck.normal()))

    def many_at_once(self, concurrency: int, seed: int) -> float:
        return super().many_at_once(concurrency, seed) / 1.1

    def reading(self, level: float, seed: int) -> Measurement:
        assert seed == noise.SEED
        found = super().reading(level, seed)
        factor = float(np.exp(self._p99_cv * self._luck.normal()))
        return replace(
            found,
            p99_latency_us=found.p99_latency_us * factor,
            latencies_us=None if found.latencies_us is None else found.latencies_us * factor,
            disturbances=self.disturbances,
        )


@pytest.fixture
def job() -> Job:
    return prepare(Request(spec=SPEC))


def test_noise_between_servers_is_found_and_none_within_one(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, "MOST_SERVERS", 60)
    monkeypatch.setattr(noise, "REPEATED_ON", 60)
    bench = NoisyBench(job, servers_cv=0.03, p99_cv=0.0)
    found = noise_on(bench, job, "f" * 16, Silent())
    assert found.servers == bench.fresh_servers == 60
    assert found.capacity.cv == pytest.approx(0.03, rel=0.3)
    assert found.p99_within.cv == pytest.approx(0.0, abs=1e-9)
    assert found.p99_between.cv is not None
    assert found.p99_between.cv > 0.01
    assert found.advice.settings != found.settings


def test_noise_within_a_server_is_found(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "MOST_SERVERS", 60)
    monkeypatch.setattr(noise, "REPEATED_ON", 60)
    found = noise_on(NoisyBench(job, 0.0, p99_cv=0.05), job, "f" * 16, Silent())
    assert found.p99_within.cv == pytest.approx(0.05, rel=0.3)
    assert found.p99_within.count == 120
    assert found.p99_between.count == 60


def test_a_quiet_bench_keeps_the_settings_and_stops_at_the_most_servers(job: Job) -> None:
    found = noise_on(NoisyBench(job, 0.0, 0.0), job, "f" * 16, Silent())
    assert found.servers == noise.MOST_SERVERS
    assert found.advice.settings == found.settings
    assert found.disturbances == ()


def test_a_slow_bench_still_gets_the_least_servers(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, "BUDGET_S", 0.0)
    found = noise_on(NoisyBench(job, 0.0, 0.0), job, "f" * 16, Silent())
    assert found.servers == noise.LEAST_SERVERS


def test_disturbances_are_told_once(job: Job) -> None:
    bench = NoisyBench(job, 0.0, 0.0)
    bench.disturbances = ("Somebody else was busy.",)
    found = noise_on(bench, job, "f" * 16, Silent())
    assert found.disturbances == bench.disturbances


def recorded(cv: float | None) -> dict[str, Any]:
    return {"model": "m", "measured_at": "2025-03-01T10:00:00+00:00", "capacity": {"cv": cv}}


def test_a_spec_finer_than_the_noise_is_told_so(job: Job) -> None:
    sentence = too_fine(recorded(0.05), job.spec)
    assert "2025-03-01" in sentence
    assert "within 5.0%" in sentence
    assert "min_gain = 2.0%" in sentence


@pytest.mark.parametrize("known", [None, recorded(None), recorded(0.001)])
def test_nothing_is_said_without_cause(job: Job, known: dict[str, Any] | None) -> None:
    assert too_fine(known, job.spec) == ""
