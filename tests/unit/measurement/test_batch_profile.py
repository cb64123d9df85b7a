"""What first calls of a model say of capacities that nobody measured."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tuner.measurement.batch_profile import BatchCall, BatchProfile

SIZES = (1, 2, 4, 8, 16, 32)
WITHIN_S, LATE = 0.040, 0.01
#: Capacities recorded of the emulated accelerator (benchmarks/searches/tables), the best of each
#: number of instances (rows) and largest batch.
MOST = (1, 4, 8, 16, 32)
RECORDED = {
    1: (118, 573, 960, 1542, 1871),
    2: (176, 829, 1414, 2153, 2916),
    3: (180, 790, 1366, 2110, 2553),
}


def accelerator_s(size: int) -> float:
    """What the accelerator does of a batch beside other instances."""
    return (1.0 + 0.05 * size) / 1e3


def device_s(size: int) -> float:
    """What it does alone."""
    return (4.0 + 0.2 * size) / 1e3


def accelerator(instances: int = 2) -> list[BatchCall]:
    alone = [BatchCall(n, 1, accelerator_s(n) + device_s(n)) for n in SIZES]
    return [*alone, BatchCall(32, instances, accelerator_s(32) + instances * device_s(32))]


def profile_of(calls: list[BatchCall]) -> BatchProfile:
    profile = BatchProfile.of(calls)
    assert profile is not None
    return profile


def capacity(profile: BatchProfile, instances: int, most: int) -> float:
    return profile.capacity_per_s(instances, np.arange(1, most + 1), WITHIN_S, LATE)


def test_the_share_that_no_two_instances_do_at_once_shows_beside_others() -> None:
    assert profile_of(accelerator(2)).exclusive == {32: pytest.approx(0.8)}
    assert profile_of(accelerator(3)).exclusive == {32: pytest.approx(0.8)}


@pytest.mark.parametrize(("beside_s", "share"), [(0.010, 0.0), (0.020, 1.0), (0.009, 0.0)])
def test_instances_that_share_nothing_and_all_are_distinguished(
    beside_s: float, share: float
) -> None:
    calls = [BatchCall(4, 1, 0.010), BatchCall(4, 2, beside_s)]
    assert profile_of(calls).exclusive == {4: share}


@pytest.mark.parametrize(("answered_per_s", "at_work"), [(38.0, 1.0), (57.9, 1.5), (87.0, 2.0)])
def test_a_saturated_config_shows_how_much_of_two_instances_overlaps(
    answered_per_s: float, at_work: float
) -> None:
    """A network of 26 ms with a queue delay, of whose two instances no call showed anything."""
    profile = profile_of([BatchCall(1, 1, 0.0259), BatchCall(2, 1, 0.0518)])
    beside = profile.beside(2, 1.0, answered_per_s)
    assert beside.exclusive == {1: pytest.approx(1.0 / at_work, abs=0.002)}
    one, two = (p.capacity_per_s(2, np.array([1]), 0.1, LATE) for p in (profile, beside))
    assert one == pytest.approx(17.3, abs=0.1)
    assert (two > 2.5 * one) == (at_work == 2.0)
    assert beside.beside(2, 1.0, 38.0) is beside
    assert profile.beside(1, 1.0, answered_per_s) is profile


def test_small_batches_that_run_side_by_side_gain_by_instances_and_large_ones_do_not() -> None:
    alone = [BatchCall(1, 1, 0.004), BatchCall(32, 1, 0.012)]
    profile = profile_of([*alone, BatchCall(1, 2, 0.004), BatchCall(32, 2, 0.024)])
    assert capacity(profile, 2, 1) > 1.9 * capacity(profile, 1, 1)
    large = np.array([32])
    one, two = (profile.capacity_per_s(k, large, WITHIN_S, LATE) for k in (1, 2))
    assert two < one


def test_without_a_call_by_itself_there_is_no_profile() -> None:
    assert BatchProfile.of([]) is None
    assert BatchProfile.of([BatchCall(8, 2, 0.02)]) is None


def test_capacities_of_the_recorded_accelerator_are_predicted_within_a_quarter() -> None:
    profile = profile_of(accelerator())
    for instances, capacities in RECORDED.items():
        for most, recorded in zip(MOST, capacities, strict=True):
            assert capacity(profile, instances, most) == pytest.approx(recorded, rel=0.25)


def test_best_number_of_instances_of_the_accelerator_is_predicted() -> None:
    profile = profile_of(accelerator())
    capacities = {k: capacity(profile, k, 32) for k in (1, 2, 3, 4)}
    assert max(capacities, key=lambda k: capacities[k]) == 2


def test_a_larger_batch_that_the_slo_does_not_allow_adds_nothing() -> None:
    calls = [BatchCall(1, 1, 0.005), BatchCall(8, 1, 0.015), BatchCall(64, 1, 0.100)]
    profile = profile_of(calls)
    assert capacity(profile, 1, 64) == pytest.approx(capacity(profile, 1, 32), rel=0.01)
    assert profile.fits(8, WITHIN_S)
    assert not profile.fits(64, WITHIN_S)


def test_profile_of_one_instance_predicts_no_gain_of_several() -> None:
    profile = profile_of([BatchCall(1, 1, 0.005)])
    assert profile.exclusive is None
    assert capacity(profile, 4, 1) == capacity(profile, 1, 1)


def test_a_stricter_percentile_leaves_less() -> None:
    profile = profile_of(accelerator())
    shares = (0.5, 0.1, 0.01, 0.001)
    capacities = [profile.capacity_per_s(1, np.arange(1, 2), WITHIN_S, late) for late in shares]
    assert all(more > less for more, less in pairwise(capacities))


def test_a_request_that_takes_too_long_by_itself_leaves_little_and_no_error() -> None:
    profile = profile_of([BatchCall(1, 1, 0.200)])
    assert 0.0 < capacity(profile, 1, 1) < 1.0
