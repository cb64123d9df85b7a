"""What a measured grid of several models says of a config, without a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from served_grid import Cell, Grid, one_by_one

from tuner.space.candidate import Candidate
from tuner.space.knob import Knob

#: What each pair of instance counts stands: neither model gains much until the other has.
CAPACITIES = {(1, 1): 50.0, (2, 1): 51.0, (1, 2): 80.0, (2, 2): 100.0}


def config(one: int, two: int) -> Candidate:
    return Candidate({Knob("one", "count"): one, Knob("two", "count"): two})


def cell(candidate: Candidate, capacity: float, number: int = 0, alone: str = "") -> Cell:
    return Cell(candidate, capacity, number, alone, ((capacity, True),), 1.0)


def test_tuning_one_model_after_the_other_depends_on_the_order() -> None:
    worth = {config(*counts): capacity for counts, capacity in CAPACITIES.items()}
    found = {order: (end, tried) for order, end, tried in one_by_one(worth, config(1, 1), 0.05)}
    assert found == {("one", "two"): (config(1, 2), 3), ("two", "one"): (config(2, 2), 3)}


def test_a_grid_goes_on_where_it_stopped_and_on_its_machine_only(tmp_path: Path) -> None:
    path = tmp_path / "grid.jsonl"
    grid = Grid.read(path, {"cpu": "a"})
    grid.add(cell(config(1, 1), 50.0))
    grid.add(cell(config(2, 1), 51.0, alone="one"))
    grid.add(cell(config(1, 1), 40.0, number=1))
    grid.add(cell(config(1, 1), 44.0, number=2))
    again = Grid.read(path, {"cpu": "a"})
    assert again.cells == grid.cells
    assert again.firsts() == {config(1, 1): 50.0}
    assert again.firsts("one") == {config(2, 1): 51.0}
    assert again.worth() == {config(1, 1): 42.0}  # the mean of its rounds, not the first look
    with pytest.raises(ValueError, match="was begun with"):
        Grid.read(path, {"cpu": "b"})
