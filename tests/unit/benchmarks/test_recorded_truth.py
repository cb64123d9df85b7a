"""Synthetic tables in which it is known what is noise and what the fields explain."""

from __future__ import annotations

import math

import numpy as np
import pytest
from builders.candidates import candidate_of, fields_of
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_server
from recorded_bench import RecordedWorld
from recorded_table import Recording, Table
from recorded_truth import shrinking_of, shrunk

from tuner.space.candidate import Candidate

SLOS = [P99_40MS, NO_ERRORS]
CANDIDATES = [
    candidate_of({"instance_group.count": count, "max_batch_size": batch})
    for count in range(1, 9)
    for batch in (2, 4, 8, 16, 32, 64)
]
SHARES = (0.6, 0.9, 1.1, 1.3)


def true_of(candidate: Candidate) -> float:
    """Twice the instances, twice the capacity; twice the batch, a fifth more."""
    fields = fields_of(candidate)
    count, batch = fields["instance_group.count"], fields["max_batch_size"]
    assert isinstance(count, int)
    assert isinstance(batch, int)
    return 100.0 * count * 1.2 ** math.log2(batch)


def recorded(noise: float, own: float, repeats: int = 3) -> list[Recording]:
    """``own``: what sets each config apart, in each of its recordings."""
    rng = np.random.default_rng(1)
    found = []
    for candidate in CANDIDATES:
        mean = true_of(candidate) * math.exp(rng.normal(0.0, own))
        for repeat in range(repeats):
            capacity = mean * math.exp(rng.normal(0.0, noise))
            # the same loads in every repeat, as the recorder has them
            points = [synthetic_server(mean * share, capacity) for share in SHARES]
            found.append(Recording(candidate, repeat, tuple(points)))
    return found


def world_of(recordings: list[Recording]) -> RecordedWorld:
    return RecordedWorld.of(Table({}, tuple(recordings)), SLOS)


def off(world: RecordedWorld, candidates: list[Candidate]) -> float:
    """How far the ratios of capacities are from those of the truth (standard deviation)."""
    return float(np.std([math.log(world.goodput(c.key) / true_of(c)) for c in candidates]))


def test_capacities_that_differ_by_noise_become_what_the_fields_explain() -> None:
    recordings = recorded(noise=0.1, own=0.0)
    before = world_of([r for r in recordings if r.repeat == 0])
    after = shrunk(before, recordings, SLOS)
    assert shrinking_of(before, recordings, SLOS).share > 0.5
    assert off(after, CANDIDATES) < 0.7 * off(before, CANDIDATES)
    assert "each is moved by" in after.changed


def test_what_sets_a_config_apart_in_each_repeat_stays() -> None:
    recordings = recorded(noise=0.02, own=0.2)
    before = world_of(recordings)
    after = shrunk(before, recordings, SLOS)
    assert shrinking_of(before, recordings, SLOS).share < 0.1
    for candidate in CANDIDATES:
        assert after.goodput(candidate.key) == pytest.approx(before.goodput(candidate.key), rel=0.1)


def test_a_table_without_repeats_stays_as_it_is() -> None:
    recordings = recorded(noise=0.1, own=0.0, repeats=1)
    before = world_of(recordings)
    after = shrunk(before, recordings, SLOS)
    assert [after.goodput(c.key) for c in CANDIDATES] == [before.goodput(c.key) for c in CANDIDATES]


def test_a_moved_curve_sustains_its_new_capacity() -> None:
    recordings = recorded(noise=0.1, own=0.0)
    after = shrunk(world_of(recordings), recordings, SLOS)
    curve = after.curves[CANDIDATES[0].key]
    assert curve.capacity is not None
    below, above = curve.at(0.97 * curve.capacity), curve.at(1.03 * curve.capacity)
    assert below.p99_latency_us < 40_000.0 < above.p99_latency_us


def test_a_config_that_misses_its_slo_at_every_load_stays_infeasible() -> None:
    hopeless = candidate_of({"instance_group.count": 9, "max_batch_size": 4})
    points = tuple(synthetic_server(load, 1.0) for load in (50.0, 100.0))
    recordings = [*recorded(noise=0.1, own=0.0), Recording(hopeless, 0, points)]
    after = shrunk(world_of(recordings), recordings, SLOS)
    assert after.goodput(hopeless.key) == 0.0
