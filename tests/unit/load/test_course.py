"""Whether latency and memory grow over a soak, told from chance: simulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from builders.measurements import synthetic_measurement

from tuner.load.course import course_of, memory_trend
from tuner.measurement.host_use import HostUse
from tuner.measurement.measurement import Course
from tuner.reason import ReasonKind
from tuner.record.confirmation import Soaked
from tuner.sentences import sentence

MIB = float(1 << 20)
READINGS = 240  # of two minutes
SOAKS = 400
Noise = Callable[[np.random.Generator], np.ndarray]


def grows(used_bytes: Sequence[float]) -> bool:
    return bool(trends(HostUse(memory=memory_trend(used_bytes))))


def trends(host: HostUse, course: Course | None = None) -> list[str]:
    measurement = replace(synthetic_measurement(), host=host, course=course, duration_s=120.0)
    return [sentence(reason) for reason in Soaked(measurement, ()).trends]


def independent(rng: np.random.Generator) -> np.ndarray:
    return 4 * MIB * rng.standard_normal(READINGS)


def alike(share: float) -> Noise:
    """Each reading is like the one before it."""

    def noise(rng: np.random.Generator) -> np.ndarray:
        values = 4 * MIB * rng.standard_normal(READINGS)
        for k in range(1, READINGS):
            values[k] += share * values[k - 1]
        return values

    return noise


def batches(rng: np.random.Generator) -> np.ndarray:
    """What is taken for a batch and given back."""
    return 30 * MIB * (rng.random(READINGS) < 0.3)


NOISES = [independent, alike(0.5), alike(0.9), batches]


@pytest.mark.parametrize("noise", NOISES)
def test_flat_memory_is_not_said_to_grow(noise: Noise) -> None:
    rngs = map(np.random.default_rng, range(SOAKS))
    alarms = sum(grows((500 * MIB + noise(rng)).tolist()) for rng in rngs)
    assert alarms <= 0.025 * SOAKS


@pytest.mark.parametrize("noise", [independent, alike(0.5), batches])
def test_a_leak_of_a_tenth_is_seen_in_nine_of_ten_soaks(noise: Noise) -> None:
    leak = np.linspace(0.0, 50 * MIB, READINGS)
    rngs = map(np.random.default_rng, range(SOAKS))
    seen = sum(grows((500 * MIB + leak + noise(rng)).tolist()) for rng in rngs)
    assert seen >= 0.9 * SOAKS


@pytest.mark.parametrize(
    "used",
    [
        200.0 * (1.0 - np.exp(-np.linspace(0, 10, READINGS))),  # a warm-up
        np.zeros(READINGS),
        np.linspace(0.0, 0.9, READINGS),  # less than a mebibyte
        np.linspace(50.0, 0.0, READINGS),
    ],
)
def test_memory_that_a_server_takes_once_is_no_growth(used: np.ndarray) -> None:
    assert not grows((MIB * (500.0 + used)).tolist())


@pytest.mark.parametrize("at", range(5, READINGS, 5))
def test_one_more_arena_is_no_growth(at: int) -> None:
    assert not grows((MIB * np.where(np.arange(READINGS) < at, 500.0, 564.0)).tolist())


def test_a_soak_of_few_readings_has_no_trend() -> None:
    assert memory_trend([1.0, 2.0, 3.0]) is None


def test_latency_of_a_flat_queue_is_not_said_to_grow() -> None:
    """A server at 0.9 of its capacity for half a minute: neighbours wait alike."""
    alarms = 0
    for seed in range(SOAKS):
        rng = np.random.default_rng(seed)
        due_s = np.cumsum(rng.exponential(0.01, 4000))
        service = np.cumsum(rng.exponential(0.009, due_s.size))
        began = np.maximum.accumulate(due_s - np.concatenate([[0.0], service[:-1]]))
        inside = (due_s >= 3.0) & (due_s < 33.0)
        latencies_us = 1e6 * (service + began - due_s)[inside]
        alarms += bool(trends(HostUse(), course_of(latencies_us, due_s[inside] - 3.0, 30.0)))
    assert alarms <= 0.025 * SOAKS


def test_growth_is_reported_with_its_error_and_its_pace() -> None:
    course = Course(growth=0.24, growth_error=0.03, relaxation_s=0.1)
    leak = memory_trend((MIB * np.linspace(500.0, 524.0, READINGS)).tolist())
    latency, memory = trends(HostUse(memory=leak), course)
    assert latency == ("latency grew by 24% of its mean (standard error 3%) in a soak of 120 s")
    assert memory.startswith("memory of the server grew by ")
    assert "an hour" in memory
    assert not trends(HostUse(), replace(course, growth_error=0.1))


def test_growth_of_memory_counts_for_the_gpus_too() -> None:
    leak = memory_trend((MIB * np.linspace(500.0, 600.0, READINGS)).tolist())
    measurement = replace(synthetic_measurement(), host=HostUse(gpu_memory=leak))
    (reason,) = Soaked(measurement, ()).trends
    assert (reason.kind, reason.facts["whose"]) == (ReasonKind.MEMORY_GROWS, "the GPUs")
