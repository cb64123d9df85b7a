"""What a measured grid of several models says of a config, without a server."""

from __future__ import annotations

from pathlib import Path

import grid_of_served
import pytest
import recorded_table as tables
from recorded_table import Recording
from served_grid import CLOSE, Cell, Grid, guess, in_order, next_load, one_by_one
from synthetic import NO_ERRORS, P99_40MS, synthetic_measurement, synthetic_server

from tuner.score.capacity import Bracket
from tuner.score.point import Point, judge_point
from tuner.space.candidate import Candidate
from tuner.space.knob import Knob
from tuner.spec.paths import DELAY
from tuner.steps.job import Job, Request, prepare

#: What each pair of instance counts sustains: neither model gains much until the other has.
CAPACITIES = {(1, 1): 50.0, (2, 1): 51.0, (1, 2): 80.0, (2, 2): 100.0}


def config(one: int, two: int) -> Candidate:
    return Candidate({Knob("one", "count"): one, Knob("two", "count"): two})


def cell(
    candidate: Candidate, capacity: float, number: int = 0, alone: str = "", *, bare: bool = False
) -> Cell:
    points = () if bare else (synthetic_measurement(capacity),)
    return Cell(Recording(candidate, number, points, "reload", 1.0, alone), capacity)


def job_of(name: str) -> Job:
    return prepare(Request(spec=tables.spec_path(name)))


def found(capacity: float, start: float) -> list[Point]:
    """All loads at which a config that sustains ``capacity`` is measured."""
    load: float | None = start
    points: list[Point] = []
    while load is not None and len(points) < 10:
        points.append(judge_point([P99_40MS, NO_ERRORS], synthetic_server(load, capacity)))
        load = next_load(points)
    return points


def test_tuning_one_model_after_the_other_depends_on_the_order() -> None:
    worth = {config(*counts): capacity for counts, capacity in CAPACITIES.items()}
    ends = {order: (end, tried) for order, end, tried in one_by_one(worth, config(1, 1), 0.05)}
    assert ends == {("one", "two"): (config(1, 2), 3), ("two", "one"): (config(2, 2), 3)}


def test_a_grid_goes_on_where_it_stopped_and_on_its_machine_only(tmp_path: Path) -> None:
    path = tmp_path / "grid.jsonl"
    grid = Grid.read(path, {"cpu": "a"})
    grid.add(cell(config(1, 1), 50.0))
    grid.add(cell(config(2, 1), 51.0, alone="one"))
    grid.add(cell(config(1, 1), 40.0, number=1))
    grid.add(cell(config(1, 1), 44.0, number=2))
    again = Grid.read(path, {"cpu": "a"})
    assert [c.to_json() for c in again.cells] == [c.to_json() for c in grid.cells]
    assert again.firsts() == {config(1, 1): 50.0}
    assert again.firsts("one") == {config(2, 1): 51.0}
    assert again.worth() == {config(1, 1): 42.0}  # the mean of its rounds, not the first look
    with pytest.raises(ValueError, match="was begun with"):
        Grid.read(path, {"cpu": "b"})


OLD = """{"machine":{"cpu":"a","versions":{"tune":"0.1.0"}}}
{"candidate":{"fields":{},"models":{"one":{"count":1},"two":{"count":1}},"server_args":[]},\
"capacity":30.9,"round":0,"alone":"","loads":[[38.6,false],[30.5,true]],"seconds":28.0}
"""


def test_cells_from_before_measurements_were_stored_count_but_are_nothing_to_a_replay(
    tmp_path: Path,
) -> None:
    path = tmp_path / "grid.jsonl"
    path.write_text(OLD)
    grid = Grid.read(path, {"cpu": "a", "cores": 2, "versions": {"tune": "0.1.0"}})
    assert grid.firsts() == {config(1, 1): 30.9}
    assert grid.bare() == {config(1, 1)}
    assert tables.parse_table(tables.lines_of(path)).recordings == ()
    grid.add(cell(config(1, 1), 32.0))
    assert (grid.firsts(), grid.bare()) == ({config(1, 1): 32.0}, set())
    (only,) = tables.parse_table(tables.lines_of(path)).recordings
    assert (only.candidate, len(only.points)) == (config(1, 1), 1)


def test_a_grid_is_read_packed_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "grid.jsonl"
    Grid.read(path, {"cpu": "a"}).add(cell(config(1, 1), 50.0))
    tables.pack(path)
    grid = Grid.read(path, {"cpu": "a"})
    grid.add(cell(config(2, 1), 51.0))
    assert Grid.read(path, {}).firsts() == {config(1, 1): 50.0, config(2, 1): 51.0}
    assert Grid.read(tmp_path / "none.jsonl", {}).cells == []
    assert not (tmp_path / "none.jsonl").exists()


def test_what_is_left_is_told_with_the_cells_to_be_filled(tmp_path: Path) -> None:
    job = job_of("pair")
    grid = Grid(tmp_path / "grid.jsonl", [])
    first, second = in_order(job.space)[:2]
    grid.cells += [cell(first, 50.0), cell(second, 60.0, bare=True)]
    left = list(grid_of_served.plan_of_firsts(job, grid, ""))
    assert (len(left), left[-1]) == (71, (second, 0))
    assert first not in {candidate for candidate, _ in left}
    said = grid_of_served.left_text(grid, left, "")
    assert said == "71 left, 1 of them again, since only their loads are stored, about 1 minutes"


@pytest.mark.parametrize(("name", "count", "half"), [("pair", 72, 32), ("chain", 96, 64)])
def test_a_grid_that_is_cut_short_has_the_current_config_and_a_whole_space_of_fewer_delays(
    name: str, count: int, half: int
) -> None:
    space = job_of(name).space
    order = in_order(space)
    assert len(order) == len(set(order)) == count
    assert order[0] == space.canonical(space.current)
    delayed = [any(v for k, v in c.values.items() if k.path == DELAY) for c in order]
    assert delayed == [False] * half + [True] * (count - half)
    counts = [[v for k, v in c.values.items() if "instance_group" in k.path] for c in order[1:3]]
    assert max(counts) == counts[0]


def test_a_config_is_first_asked_for_what_the_others_say_it_stands() -> None:
    assert guess(config(1, 1), {}) is None
    known = {config(1, 1): 50.0, config(2, 1): 100.0, config(1, 2): 80.0}
    assert guess(config(1, 1), known) == 50.0
    assert guess(config(2, 2), known) == pytest.approx(160.0, rel=0.25)
    assert guess(config(2, 2), {config(1, 1): 0.0}) is None
    far = Candidate({Knob("one", name): 1 for name in ("a", "b", "c")})
    assert guess(far, known) is None  # nothing is known of any like it


@pytest.mark.parametrize("off", [0.3, 0.8, 0.95, 1.0, 1.2, 3.0])
def test_a_capacity_is_bracketed_closely_with_few_loads(off: float) -> None:
    points = found(100.0, 100.0 * off)
    bracket = Bracket.of(points)
    assert bracket.gap <= CLOSE
    assert bracket.capacity() == pytest.approx(100.0, rel=0.02)
    assert len(points) <= (3 if 0.75 < off < 1.25 else 5)


def test_where_a_latency_hardly_rises_the_load_is_raised_ever_faster() -> None:
    flat = [judge_point([P99_40MS], synthetic_measurement(100.0, p99_us=36_000.0))]
    for _ in range(3):
        load = next_load(flat)
        assert load is not None
        flat.append(judge_point([P99_40MS], synthetic_measurement(load, p99_us=36_000.0)))
    assert flat[-1].level > 2.0 * flat[0].level


def test_a_load_with_too_few_answers_is_followed_by_a_higher_one() -> None:
    few = judge_point([P99_40MS], synthetic_measurement(10.0, count=20))
    assert few.undecided
    load = next_load([few])
    assert load is not None
    assert load > 10.0
