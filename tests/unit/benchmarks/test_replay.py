"""Searches replayed over a synthetic table of tiny-bert's space."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import matplotlib.font_manager  # noqa: F401  starts a process where its list of fonts is not kept
import numpy as np
import pytest
import recorded_curves as results
import recorded_table as tables
import replay
from builders.candidates import fields_of
from builders.measurements import synthetic_server
from recorded_bench import RecordedBench, RecordedWorld
from recorded_table import Recording, Table

from tuner.prepare.job import Job, Request, prepare
from tuner.score.capacity import Bracket
from tuner.score.point import Point

GROUND = replay.Ground("tiny-bert")
PAIR = replay.Ground("pair")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> tuple[Job, RecordedWorld]:
    """Instances and batches multiply the capacity; nothing else does."""
    job = prepare(Request(spec=tables.spec_path("tiny-bert")))
    recordings = []
    for candidate in job.space.enumerate():
        count, batch = (
            fields_of(candidate)["instance_group.count"],
            fields_of(candidate)["max_batch_size"],
        )
        assert isinstance(count, int)
        assert isinstance(batch, int)
        capacity = 100.0 * count + batch
        points = [synthetic_server(capacity * s, capacity) for s in (0.6, 0.9, 1.1, 1.3)]
        recordings.append(Recording(candidate, 0, tuple(points)))
    made = job, RecordedWorld.of(Table({}, tuple(recordings)), job.spec.slos)
    monkeypatch.setattr(replay, "world_of", lambda _: made)
    return made


def test_a_search_over_everything_ends_at_the_best(world: tuple[Job, RecordedWorld]) -> None:
    replayed = replay.replay(GROUND, "grid", 0, 100, float("inf"))
    assert replayed is not None
    assert len(replayed.steps) == len(world[1].curves)
    shares = replayed.shares()
    assert shares[-1] == 1.0
    assert (np.diff(shares) >= 0.0).all()
    assert shares.size == 100
    assert replayed.written == {str(n): pytest.approx(shares[n - 1], abs=0.03) for n in (6, 12, 24)}


def test_searches_with_one_seed_are_one_search(world: tuple[Job, RecordedWorld]) -> None:
    first, again, other = (
        replay.replay(GROUND, "random", seed, 8, float("inf")) for seed in (1, 1, 2)
    )
    assert first is not None
    assert again is not None
    assert other is not None
    assert [s.candidate for s in first.steps] == [s.candidate for s in again.steps]
    assert [s.candidate for s in first.steps] != [s.candidate for s in other.steps]


def test_none_begins_when_the_time_is_over(world: tuple[Job, RecordedWorld]) -> None:
    assert replay.replay(GROUND, "random", 1, 8, 0.0) is None


def test_the_report_has_a_row_and_a_curve_for_each_strategy(
    world: tuple[Job, RecordedWorld], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    replays = [replay.replay(GROUND, "random", seed, 12, float("inf")) for seed in range(3)]
    kept = [r for r in replays if r is not None]
    results.write("tiny-bert", kept)
    assert results.read("tiny-bert") == kept
    machine = {
        "cores": 2,
        "cpu": "synthetic",
        "versions": {"tritonserver": "0", "perf_analyzer": "0"},
    }
    text = results.report("tiny-bert", kept, machine, world[1], world[0].space)
    assert "| random | 3 |" in text
    assert "written after 12" in text
    bare = [replace(kept[0], written={})]
    without = results.report("tiny-bert", bare, machine, world[1], world[0].space)
    assert without.count("not run") == 2
    assert f"{len(world[1].curves)} configs" in text
    once = replace(world[1], noises=())
    report = results.report("tiny-bert", kept, machine, once, world[0].space)
    assert "No config was recorded twice" in report
    assert "nan" not in report
    assert (tmp_path / "tiny-bert.png").stat().st_size > 10_000


@pytest.fixture(scope="module")
def pair() -> tuple[Job, RecordedWorld]:
    return replay.world_of(PAIR)


def test_each_stream_is_judged_by_the_figures_of_that_stream(
    pair: tuple[Job, RecordedWorld],
) -> None:
    job, world = pair
    bench = RecordedBench(replace(world, noises=()), job.spec.slos, job.space.canonical, 0)
    recordings = tables.read_table("pair").recordings
    repeated = {r.candidate for r in recordings if r.repeat}
    candidate, recorded = next(
        (r.candidate, r.points) for r in recordings if r.candidate not in repeated
    )
    bench.deploy(candidate)
    for measured in recorded:
        point: Point = bench.measure(measured.load.level, 1)
        assert [r.stream for r in point.slo] == ["light", "heavy"]
        for name, figures in measured.streams.items():
            answered = point.measurement.of(name)
            assert answered is not None
            assert answered.p95_latency_us == pytest.approx(figures.p95_latency_us)
            rate = figures.throughput_infer_per_s
            assert answered.throughput_infer_per_s == pytest.approx(rate, rel=0.03)
        assert point.measurement.models == measured.models
    levels = [p.load.level for p in recorded]
    points = [bench.measure(level, 1) for level in (*levels, 3.0 * levels[-1])]
    assert Bracket.of(points).capacity() == pytest.approx(world.goodput(candidate.key), rel=0.01)
    light, heavy = (points[-1].measurement.streams[name] for name in ("light", "heavy"))
    assert (light.load.level, heavy.load.level) == pytest.approx(
        (0.75 * points[-1].level, 0.25 * points[-1].level), rel=1e-4
    )
    alone_s = bench.one_at_a_time(1)
    assert set(alone_s) == {"", "heavy", "light"}
    assert alone_s["light"] < alone_s[""] < alone_s["heavy"]


def test_a_slower_table_is_the_same_search_on_another_clock() -> None:
    job, world = replay.world_of(GROUND)
    slow_job, slow = replay.world_of(replace(GROUND, slower=20.0))
    assert slow.best == pytest.approx(world.best / 20.0)
    (bound, _), (slow_bound, _) = job.spec.slos, slow_job.spec.slos
    assert slow_bound.bound == pytest.approx(20.0 * bound.bound)
    candidate = job.space.canonical(job.space.current)
    points = []
    for spec, of, times in ((job.spec, world, 1.0), (slow_job.spec, slow, 20.0)):
        bench = RecordedBench(replace(of, noises=()), spec.slos, job.space.canonical, 0)
        bench.deploy(candidate)
        points.append(bench.measure(0.9 * world.goodput(candidate.key) / times, 1))
    asis, slower = points
    assert slower.slo_utilisation == pytest.approx(asis.slo_utilisation)
    assert slower.measurement.requests_per_s == pytest.approx(
        asis.measurement.requests_per_s / 20.0, rel=0.02
    )


def test_everything_that_is_compared_has_a_row() -> None:
    assert set(replay.COMPARED) == set(results.COLOURS)


@pytest.mark.usefixtures("pair")
def test_of_several_models_searches_that_vary_one_are_not_compared() -> None:
    assert replay.compared_on(PAIR) == ["gp", "tpe", "tpe with designs", "random", "grid"]


def test_of_one_model_all_searches_are_compared_but_those_that_need_torch() -> None:
    assert {*replay.COMPARED} - {*replay.compared_on(GROUND)} == {"GPSampler with designs"}


@pytest.mark.parametrize("strategy", ["random", "grid"])
def test_several_models_are_searched_over_their_grid(
    pair: tuple[Job, RecordedWorld], strategy: str
) -> None:
    replayed = replay.replay(PAIR, strategy, 0, 32, float("inf"))
    assert replayed is not None
    assert {s.state for s in replayed.steps} <= {"measured", "pruned"}
    assert replayed.shares()[-1] >= 0.95
