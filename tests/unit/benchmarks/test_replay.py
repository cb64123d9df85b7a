"""Searches replayed over a synthetic table of tiny-bert's space."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import recorded_curves as results
import recorded_table as tables
import replay
from recorded_bench import RecordedWorld
from recorded_table import Recording, Table
from synthetic import synthetic_server

from tuner.steps.job import Job, Request, prepare

GROUND = replay.Ground("tiny-bert")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> tuple[Job, RecordedWorld]:
    """Instances and batches multiply the capacity; nothing else does."""
    job = prepare(Request(spec=tables.spec_path("tiny-bert")))
    recordings = []
    for candidate in job.space.enumerate():
        count, batch = candidate.of("")["instance_group.count"], candidate.of("")["max_batch_size"]
        assert isinstance(count, int)
        assert isinstance(batch, int)
        capacity = 100.0 * count + batch
        points = [synthetic_server(capacity * s, capacity) for s in (0.6, 0.9, 1.1, 1.3)]
        recordings.append(Recording(candidate, 0, tuple(points)))
    found = job, RecordedWorld.of(Table({}, tuple(recordings)), job.spec.slos)
    monkeypatch.setattr(replay, "world_of", lambda _: found)
    return found


def test_a_search_over_everything_ends_at_the_best(world: tuple[Job, RecordedWorld]) -> None:
    found = replay.replay(GROUND, "grid", 0, 100, float("inf"))
    assert found is not None
    assert len(found.steps) == len(world[1].curves)
    shares = found.shares()
    assert shares[-1] == 1.0
    assert (np.diff(shares) >= 0.0).all()
    assert shares.size == 100
    assert found.written == {str(n): pytest.approx(shares[n - 1], abs=0.03) for n in (6, 12, 24)}


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
    found = [replay.replay(GROUND, "random", seed, 12, float("inf")) for seed in range(3)]
    kept = [r for r in found if r is not None]
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
    assert "92 configs" in text
    assert (tmp_path / "tiny-bert.png").stat().st_size > 10_000
    assert "random" in (tmp_path / "tiny-bert.svg").read_text()
