"""The noise of an emulated bench, known by construction."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from emulated import EmulatedBench

from tuner.confirm.repeatability import provable_gain
from tuner.measurement.measurement import Measurement
from tuner.programs import noise
from tuner.programs.noise import neighbour_of, noise_on
from tuner.spec.model import Spec
from tuner.spec.units import Percent
from tuner.steps.events import Silent
from tuner.steps.job import Job, Request, prepare
from tuner.steps.known_noise import near_miss, too_fine
from tuner.steps.neighbours import among_neighbours, only_one_on

SPEC = Path(__file__).parents[3] / "search_spaces" / "quickstart.yaml"


class NoisyBench(EmulatedBench):
    """Each server has a capacity of its own about 100/s; each measurement its own p99.

    ``arrivals_cv``: how differently the current config and its neighbour take the same arrivals.
    """

    def __init__(
        self, job: Job, servers_cv: float, p99_cv: float, arrivals_cv: float = 0.0
    ) -> None:
        capacity = {job.space.current: 100.0, neighbour_of(job): 130.0}
        super().__init__(capacity, weather=0.0, slos=job.spec.slos, alone_s=0.006)  # type: ignore[arg-type]
        self._arrivals_cv, self._current = arrivals_cv, job.space.current
        self._luck = np.random.default_rng(4)
        self._servers_cv, self._p99_cv = servers_cv, p99_cv
        self.disturbances: tuple[str, ...] = ()

    @property
    def fresh_servers(self) -> int:
        return sum(fresh for c, fresh in self.deployed if c == self._current)

    def luck(self) -> float:
        return float(np.exp(self._servers_cv * self._luck.normal()))

    def kindness(self, seed: int) -> float:
        config = 0 if self.candidate == self._current else 1
        return float(np.exp(self._arrivals_cv * (-1) ** (seed + config)))

    def many_at_once(self, concurrency: int, seed: int) -> float:
        return super().many_at_once(concurrency, seed) / 1.1

    def reading(self, level: float, seed: int) -> Measurement:
        assert seed in (700_000, 700_001)
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
    monkeypatch.setattr(noise, "MOST_ROUNDS", 60)
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
    monkeypatch.setattr(noise, "MOST_ROUNDS", 60)
    monkeypatch.setattr(noise, "REPEATED_ON", 60)
    found = noise_on(NoisyBench(job, 0.0, p99_cv=0.05), job, "f" * 16, Silent())
    assert found.p99_within.cv == pytest.approx(0.05, rel=0.3)
    assert found.p99_within.count == 120
    assert found.p99_between.count == 60


def test_the_noise_of_a_comparison_is_that_of_two_different_configs(
    job: Job,
) -> None:
    """A config beside itself repeats perfectly here; beside another one it does not."""
    found = noise_on(NoisyBench(job, 0.0, 0.0, arrivals_cv=0.01), job, "f" * 16, Silent())
    assert found.neighbour == "instances 2"
    assert found.capacity.cv == pytest.approx(0.0, abs=2e-3)
    # three rounds 2 % above, three 2 % below
    assert found.comparison.cv == pytest.approx(0.02 * math.sqrt(6 / 5), rel=0.15)
    assert found.advice.settings != found.settings


def test_a_neighbour_that_is_not_served_leaves_the_current_config_alone(job: Job) -> None:
    bench = NoisyBench(job, 0.03, 0.0)
    bench.capacity = {job.space.current: 100.0}
    found = noise_on(bench, job, "f" * 16, Silent())
    assert (found.neighbour, found.comparison.cv) == ("", None)
    assert found.servers == 6
    assert found.capacity.cv is not None
    assert f"varies by {math.sqrt(2) * found.capacity.cv:.1%}" in found.advice.reasons[0]


def test_a_run_beside_it_is_told_of_the_doctor(job: Job) -> None:
    with among_neighbours("doctor", "--noise", job, print):
        told: list[str] = []
        with only_one_on(job), among_neighbours("run", "r", job, told.append):
            pass
    assert [t for t in told if t.startswith("tune doctor --noise (pid")]


def test_a_quiet_bench_keeps_the_settings_and_stops_at_the_most_servers(job: Job) -> None:
    found = noise_on(NoisyBench(job, 0.0, 0.0), job, "f" * 16, Silent())
    assert found.servers == 6
    assert found.level == pytest.approx(100.0, rel=0.1)
    assert (found.p99_within.count, found.p99_between.count) == (4, 6)  # on two of them twice
    assert found.throughput_within.count == 4
    assert found.advice.settings == found.settings
    assert found.disturbances == ()


def test_a_slow_bench_still_gets_the_least_servers(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, "BUDGET_S", 0.0)
    found = noise_on(NoisyBench(job, 0.0, 0.0), job, "f" * 16, Silent())
    assert found.servers == 3


@pytest.mark.parametrize(
    ("server_s", "servers"), [(12.0, 6), (13.5, 5), (16.0, 4), (20.0, 3), (60.0, 3)]
)
def test_no_round_is_begun_that_would_not_be_done_in_time(
    server_s: float, servers: int, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = NoisyBench(job, 0.0, 0.0)
    clock = SimpleNamespace(monotonic=lambda: server_s * len(bench.deployed))
    monkeypatch.setattr(noise, "time", clock)
    found = noise_on(bench, job, "f" * 16, Silent())
    assert (found.servers, bench.fresh_servers) == (servers, servers)
    assert found.seconds == server_s * (2 * servers + 1)
    assert len(bench.deployed) == 2 * servers + 1  # the first is for looking


def test_loads_that_are_listed_are_repeated_at_the_highest_that_holds(tmp_path: Path) -> None:
    text = SPEC.read_text().replace(
        "../model_repository", str(SPEC.parents[1] / "model_repository")
    )
    spec = tmp_path / "spec.yaml"
    spec.write_text(text.replace("{kind: poisson}", "{kind: poisson, rate: [80, 90, 160]}"))
    job = prepare(Request(spec=spec))
    bench = NoisyBench(job, servers_cv=0.0, p99_cv=0.0)
    found = noise_on(bench, job, "f" * 16, Silent())
    assert found.level == 90.0
    fresh = [a.level for a in bench.asked if a.server > 1]
    assert fresh == [90.0] * 14  # six rounds of both, two of them with a repeat


def test_a_metric_that_is_minimised_is_what_repeats(tmp_path: Path) -> None:
    text = SPEC.read_text().replace(
        "../model_repository", str(SPEC.parents[1] / "model_repository")
    )
    spec = tmp_path / "spec.yaml"
    spec.write_text(text.replace("maximize goodput", "minimize p99_latency at 80/s"))
    job = prepare(Request(spec=spec))
    found = noise_on(NoisyBench(job, servers_cv=0.0, p99_cv=0.05), job, "f" * 16, Silent())
    assert found.level == 80.0
    assert found.capacity == found.p99_between
    assert found.capacity.cv is not None
    assert found.capacity.cv > 0.01


def test_what_was_measured_on_which_config_is_kept(job: Job) -> None:
    found = noise_on(NoisyBench(job, 0.0, 0.0), job, "f" * 16, Silent())
    assert (found.model, found.fingerprint) == ("emulated-accelerator", "f" * 16)
    assert (found.config_sha256, found.spec_path) == (job.served.models[""].files.sha256, str(SPEC))
    assert found.settings.window_s == 5.0
    assert found.to_json()["capacity"]["count"] == 6


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
    assert "varies by 7.1%" in sentence  # two configs, each by 5 %
    assert "min_gain = 2.0%" in sentence


def test_what_two_configs_showed_counts_above_what_one_did(job: Job) -> None:
    found = {**recorded(0.001), "comparison": {"cv": 0.04, "count": 6}}
    assert "varies by 4.0%" in too_fine(found, job.spec)


def test_a_spec_is_told_until_a_gain_of_twice_what_it_asks_for_can_be_proved(job: Job) -> None:
    def asking(gain: float) -> Spec:
        confirm = job.spec.confirm.model_copy(update={"min_gain": Percent(gain)})
        return job.spec.model_copy(update={"confirm": confirm})

    deviation = math.sqrt(2.0) * 0.05
    just = math.ceil(1e3 * provable_gain(deviation, job.spec.confirm.rounds, 0.0)) / 1e3
    assert too_fine(recorded(0.05), asking(just - 0.001))
    assert not too_fine(recorded(0.05), asking(just))


@pytest.mark.parametrize("known", [None, recorded(None), recorded(0.001)])
def test_nothing_is_said_without_cause(job: Job, known: dict[str, Any] | None) -> None:
    assert too_fine(known, job.spec) == ""


def test_a_near_miss_is_within_two_standard_deviations_of_a_p99() -> None:
    def recorded(cv: float | None) -> dict[str, object]:
        return {"p99_between": {"cv": cv, "count": 3}}

    assert near_miss(None) == near_miss({}) == near_miss(recorded(None)) == pytest.approx(1.10)
    assert near_miss(recorded(0.08)) == pytest.approx(1.16)
    assert near_miss(recorded(0.0)) == pytest.approx(1.04)  # three repeats may agree by chance
    assert near_miss(recorded(3.0)) == pytest.approx(1.5)
