"""Answers from small synthetic tables: interpolation, overload, noise, and what is only noise."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import recorded_table as tables
from builders.candidates import candidate_of, fields_of
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement, synthetic_server
from recorded_bench import (
    FIGURES,
    RecordedBench,
    RecordedCurve,
    RecordedNoise,
    RecordedWorld,
    latencies_of,
)
from recorded_table import LONG, Recording, Table
from recorded_truth import shrinking_of, shrunk

from tuner.errors import LoadFailedError
from tuner.measurement.measurement import Measurement
from tuner.reason import Reason
from tuner.space.candidate import Candidate

SLOS = [P99_40MS, NO_ERRORS]

ONE = candidate_of({"instance_group.count": 1})

TWO = candidate_of({"instance_group.count": 2})


def recording(candidate: Candidate, points: list[Measurement], repeat: int = 0) -> Recording:
    return Recording(candidate, repeat, tuple(points))


def steady(level: float, p99_us: float) -> Measurement:
    return synthetic_measurement(level, p99_us, count=round(level), duration_s=1.0)


def a_curve() -> RecordedCurve:
    points = [steady(500.0, 10_000.0), steady(1000.0, 20_000.0), steady(1200.0, 80_000.0)]
    return RecordedCurve.of([recording(ONE, points)], SLOS)


def a_bench(world: RecordedWorld, seed: int) -> RecordedBench:
    bench = RecordedBench(world, SLOS, lambda c: c, seed)
    bench.deploy(ONE)
    return bench


def test_a_recorded_load_is_answered_as_it_was_recorded() -> None:
    row = a_curve().at(1000.0)
    assert row.p99_latency_us == pytest.approx(20_000.0)
    assert row.p50_latency_us == pytest.approx(steady(1000.0, 20_000.0).p50_latency_us)
    assert row.throughput_infer_per_s == pytest.approx(1000.0)


def test_between_recorded_loads_logarithms_are_interpolated() -> None:
    middle = math.sqrt(500.0 * 1000.0)
    row = a_curve().at(middle)
    assert row.p99_latency_us == pytest.approx(math.sqrt(10_000.0 * 20_000.0))
    assert row.load.level == middle
    assert row.completed_count == pytest.approx(middle * row.duration_s, abs=1.0)


def test_between_a_load_it_kept_up_with_and_an_overload_it_answers_no_more_than_in_that() -> None:
    overloaded = replace(steady(2000.0, 500_000.0), throughput_infer_per_s=1300.0)
    curve = RecordedCurve.of([recording(ONE, [steady(1000.0, 20_000.0), overloaded])], SLOS)
    answered = {level: curve.at(level).throughput_infer_per_s for level in (1200.0, 1600.0, 2000.0)}
    assert answered == pytest.approx({1200.0: 1200.0, 1600.0: 1300.0, 2000.0: 1300.0})


def test_below_the_recorded_loads_latencies_fall_on_to_a_quarter() -> None:
    curve = a_curve()  # from 500/s to 1000/s the latency doubles
    assert curve.at(250.0).p99_latency_us == pytest.approx(5_000.0)
    assert curve.at(1.0).p99_latency_us == pytest.approx(2_500.0)
    assert curve.at(1.0).throughput_infer_per_s == pytest.approx(1.0)


def test_the_capacity_is_where_the_slo_begins_to_be_missed() -> None:
    curve = a_curve()
    assert curve.capacity == pytest.approx(1000.0 * 1.2**0.5)
    assert curve.at(curve.capacity).p99_latency_us == pytest.approx(40_000.0)


def test_beyond_the_recorded_loads_a_queue_grows_and_the_throughput_does_not() -> None:
    curve = a_curve()
    near, far = curve.at(1500.0), curve.at(3000.0)
    assert near.throughput_infer_per_s == pytest.approx(1200.0)
    assert far.throughput_infer_per_s == pytest.approx(1200.0)
    assert 80_000.0 < near.p99_latency_us < far.p99_latency_us


def test_the_truth_is_the_mean_of_all_recordings_of_a_load() -> None:
    slower = [steady(500.0, 10_000.0), steady(1000.0, 80_000.0)]
    faster = [steady(500.0, 10_000.0), steady(1000.0, 20_000.0)]
    curve = RecordedCurve.of([recording(ONE, slower), recording(ONE, faster, 1)], SLOS)
    assert curve.at(1000.0).p99_latency_us == pytest.approx(40_000.0)


def test_noise_comes_from_repeats_and_from_the_seed() -> None:
    quiet = [steady(500.0, 10_000.0), steady(1000.0, 20_000.0)]
    loud = [steady(500.0, 12_100.0), steady(1000.0, 24_200.0)]
    table = Table({}, (recording(ONE, quiet), recording(ONE, loud, 1)))
    world = RecordedWorld.of(table, SLOS)
    assert len(world.noises) == 2
    answers = {a_bench(world, s).measure(500.0, 1).measurement.p99_latency_us for s in range(20)}
    mean = 11_000.0  # geometric; each is off by a tenth, widened by the square root of two
    assert sorted(answers) == pytest.approx([mean / 1.1**2**0.5, mean * 1.1**2**0.5])
    assert a_bench(world, 3).measure(500.0, 2) == a_bench(world, 3).measure(500.0, 2)


@pytest.mark.parametrize(("alike", "count"), [(0.0, 2), (0.5, 2), (1.0, 1)])
def test_a_deployment_shares_noise_as_far_as_the_errors_of_a_repeat_are_alike(
    alike: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecordedWorld, "likeness", alike)
    points = [[steady(500.0, p99), steady(1000.0, 2 * p99)] for p99 in (10_000.0, 12_100.0)]
    recordings = tuple(recording(ONE, p, repeat) for repeat, p in enumerate(points))
    bench = a_bench(RecordedWorld.of(Table({}, recordings), SLOS), 3)
    answers = {round(bench.measure(500.0, s).measurement.p99_latency_us) for s in range(20)}
    assert len(answers) == count


def test_a_fresh_server_is_another_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordedWorld, "likeness", 1.0)
    points = [[steady(500.0, p99), steady(1000.0, 2 * p99)] for p99 in (10_000.0, 12_100.0)]
    recordings = tuple(recording(ONE, p, repeat) for repeat, p in enumerate(points))
    bench = a_bench(RecordedWorld.of(Table({}, recordings), SLOS), 3)

    def answers(*, fresh: bool) -> set[int]:
        distinct = set()
        for _ in range(20):
            bench.deploy(ONE, fresh=fresh)
            distinct.add(round(bench.measure(500.0, 1).measurement.p99_latency_us))
        return distinct

    assert len(answers(fresh=False)) == 1
    assert len(answers(fresh=True)) == 2


def test_errors_of_one_repeat_at_neighbouring_loads_may_be_alike() -> None:
    def errors(*off: float) -> RecordedNoise:
        residuals = np.zeros((len(off), len(FIGURES) + 1))
        residuals[:, FIGURES.index("p99_latency_us")] = off
        return RecordedNoise(np.array([0.6, 0.9, 1.8])[: len(off)], residuals)

    alike = (errors(0.1, 0.1, 9.0), errors(-0.2, -0.2, -9.0), errors(0.3, 0.3))
    assert RecordedWorld({}, alike).likeness == pytest.approx(1.0)
    assert math.isnan(RecordedWorld({}, alike[:2]).likeness)


def test_repeats_in_windows_of_a_runs_length_are_the_noise_and_no_part_of_the_truth() -> None:
    short = [[steady(500.0, p99), steady(1000.0, 2 * p99)] for p99 in (10_000.0, 40_000.0)]
    long = [[steady(500.0, p99), steady(1000.0, 9 * p99)] for p99 in (10_000.0, 10_200.0)]
    table = (*(recording(ONE, p, n) for n, p in enumerate(short)),)
    with_long = (*table, *(recording(ONE, p, LONG + n) for n, p in enumerate(long)))
    world = RecordedWorld.of(Table({}, with_long), SLOS)
    assert world.goodput(ONE.key) == RecordedWorld.of(Table({}, table), SLOS).goodput(ONE.key)
    p99 = FIGURES.index("p99_latency_us")
    off = [float(noise.residuals[0, p99]) for noise in world.noises]
    assert sorted(off) == pytest.approx([-0.014, 0.014], abs=1e-4)
    assert world.repeatability == pytest.approx(0.0141, abs=1e-4)
    assert math.isnan(RecordedWorld({}, ()).repeatability)


def test_the_best_config_may_answer_as_an_ordinary_one() -> None:
    better = [steady(500.0, 5_000.0), steady(1000.0, 10_000.0)]
    worse = [steady(500.0, 10_000.0), steady(1000.0, 60_000.0)]
    world = RecordedWorld.of(Table({}, (recording(ONE, better), recording(TWO, worse))), SLOS)
    ordinary = world.with_ordinary_best()
    assert ordinary.goodput(ONE.key) == ordinary.goodput(TWO.key) == world.goodput(TWO.key)
    assert ordinary.best < world.best


def test_without_repeats_there_is_no_noise() -> None:
    table = Table({}, (recording(ONE, [steady(500.0, 10_000.0)]),))
    point = a_bench(RecordedWorld.of(table, SLOS), 1).measure(500.0, 1)
    assert point.measurement.p99_latency_us == pytest.approx(10_000.0)
    assert point.passed


def test_config_without_a_recording_fails_as_a_trial_does() -> None:
    world = RecordedWorld.of(Table({}, ()), SLOS)
    with pytest.raises(LoadFailedError, match="nothing is recorded"):
        RecordedBench(world, SLOS, lambda c: c, 0).deploy(TWO)


def test_latencies_have_the_percentiles_of_the_measurement() -> None:
    measurement = steady(1000.0, 20_000.0)
    drawn = latencies_of(measurement)
    assert drawn[989] == pytest.approx(measurement.p99_latency_us)
    assert drawn[499] == pytest.approx(measurement.p50_latency_us)
    assert (drawn[1:] >= drawn[:-1]).all()


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    tables.append(path, {"machine": {"cores": 2}})
    points = [
        replace(
            synthetic_server(100.0, 200.0),
            latencies_us=None,
            disturbances=(Reason.of_text("wind"),),
        )
    ]
    tables.append(path, tables.line_of(recording(TWO, points, 1)))
    parsed = tables.parse_table(iter(path.read_text().splitlines()))
    assert parsed.machine == {"cores": 2}
    (only,) = parsed.recordings
    assert (only.candidate, only.repeat) == (TWO, 1)
    (point,) = only.points
    assert point.p99_latency_us == pytest.approx(points[0].p99_latency_us, rel=1e-5)
    assert replace(point, p99_latency_us=0.0).disturbance_texts == ("wind",)


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


def recorded(noise: float, spread: float, repeats: int = 3) -> list[Recording]:
    """``spread``: what sets each config apart, in each of its recordings."""
    rng = np.random.default_rng(1)
    recordings = []
    for candidate in CANDIDATES:
        mean = true_of(candidate) * math.exp(rng.normal(0.0, spread))
        for repeat in range(repeats):
            capacity = mean * math.exp(rng.normal(0.0, noise))
            # the same loads in every repeat, as the recorder has them
            points = [synthetic_server(mean * share, capacity) for share in SHARES]
            recordings.append(Recording(candidate, repeat, tuple(points)))
    return recordings


def world_of(recordings: list[Recording]) -> RecordedWorld:
    return RecordedWorld.of(Table({}, tuple(recordings)), SLOS)


def off(world: RecordedWorld, candidates: list[Candidate]) -> float:
    """How far the ratios of capacities are from those of the truth (standard deviation)."""
    return float(np.std([math.log(world.goodput(c.key) / true_of(c)) for c in candidates]))


def test_capacities_that_differ_by_noise_become_what_the_fields_explain() -> None:
    recordings = recorded(noise=0.1, spread=0.0)
    before = world_of([r for r in recordings if r.repeat == 0])
    after = shrunk(before, recordings, SLOS)
    assert shrinking_of(before, recordings, SLOS).share > 0.5
    assert off(after, CANDIDATES) < 0.7 * off(before, CANDIDATES)
    assert "each is moved by" in after.changed


def test_difference_of_a_config_in_each_repeat_stays() -> None:
    recordings = recorded(noise=0.02, spread=0.2)
    before = world_of(recordings)
    after = shrunk(before, recordings, SLOS)
    assert shrinking_of(before, recordings, SLOS).share < 0.1
    for candidate in CANDIDATES:
        assert after.goodput(candidate.key) == pytest.approx(before.goodput(candidate.key), rel=0.1)


def test_a_table_without_repeats_stays_as_it_is() -> None:
    recordings = recorded(noise=0.1, spread=0.0, repeats=1)
    before = world_of(recordings)
    after = shrunk(before, recordings, SLOS)
    assert [after.goodput(c.key) for c in CANDIDATES] == [before.goodput(c.key) for c in CANDIDATES]


def test_a_moved_curve_sustains_its_new_capacity() -> None:
    recordings = recorded(noise=0.1, spread=0.0)
    after = shrunk(world_of(recordings), recordings, SLOS)
    curve = after.curves[CANDIDATES[0].key]
    assert curve.capacity is not None
    below, above = curve.at(0.97 * curve.capacity), curve.at(1.03 * curve.capacity)
    assert below.p99_latency_us < 40_000.0 < above.p99_latency_us


def test_a_config_that_misses_its_slo_at_every_load_stays_infeasible() -> None:
    hopeless = candidate_of({"instance_group.count": 9, "max_batch_size": 4})
    points = tuple(synthetic_server(load, 1.0) for load in (50.0, 100.0))
    recordings = [*recorded(noise=0.1, spread=0.0), Recording(hopeless, 0, points)]
    after = shrunk(world_of(recordings), recordings, SLOS)
    assert after.goodput(hopeless.key) == 0.0
