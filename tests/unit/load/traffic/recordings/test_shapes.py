"""Requests of a recording are told apart by shape, or by size where their shapes are many."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.load.traffic.recordings.lines import RecordedStream, read_recording, shapes_of_line
from tuner.load.traffic.recordings.shapes import MOST_SHAPES, groups_of


def recorded(directory: Path, rows: list[dict[str, Any]]) -> RecordedStream:
    path = directory / "requests.jsonl"
    path.write_text("".join(json.dumps({"due_s": k, **row}) + "\n" for k, row in enumerate(rows)))
    return RecordedStream(read_recording(path), np.arange(len(rows)))


def grouped(directory: Path, rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    groups = groups_of(recorded(directory, rows))
    return {group.name: group.numbers.tolist() for group in groups}


def test_a_few_shapes_are_distinguished_by_name(tmp_path: Path) -> None:
    long, short = {"shapes": {"ids": [256]}}, {"inputs": {"ids": {"content": [1], "shape": [1]}}}
    assert grouped(tmp_path, [long, short, long]) == {"[1]": [1], "[256]": [0, 2]}
    two = [{"shapes": {"ids": [n], "mask": [n, 2]}} for n in (4, 3)]
    assert [*grouped(tmp_path, two).values()] == [[1], [0]]
    assert grouped(tmp_path, [long, long]) == {"": [0, 1]}


def test_requests_whose_lines_do_not_say_their_shapes_are_one(tmp_path: Path) -> None:
    rows = [{"entry": 1}, {"entry": 2}, {"shapes": {"ids": [3]}}]
    assert grouped(tmp_path, rows) == {"": [0, 1, 2]}


@given(st.lists(st.integers(1, 500), min_size=2, max_size=80))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_each_request_is_in_one_group_and_groups_ascend(tmp_path: Path, sizes: list[int]) -> None:
    groups = groups_of(recorded(tmp_path, [{"shapes": {"ids": [n]}} for n in sizes]))
    numbers = np.concatenate([group.numbers for group in groups])
    assert sorted(numbers.tolist()) == list(range(len(sizes)))
    assert len({group.name for group in groups}) == len(groups) <= MOST_SHAPES
    ranges = [[sizes[k] for k in group.numbers] for group in groups]
    assert all(max(a) < min(b) for a, b in pairwise(ranges))


def test_many_shapes_are_grouped_by_size_in_equal_numbers(tmp_path: Path) -> None:
    rows = [{"shapes": {"ids": [n + 1]}} for n in range(100)]
    groups = grouped(tmp_path, rows)
    assert len(groups) == 4
    assert {len(numbers) for numbers in groups.values()} <= {24, 25, 26}


@pytest.mark.parametrize(
    ("row", "shapes"),
    [
        ({"inputs": {"x": [1, 2, 3]}}, (("x", (3,)),)),
        ({"inputs": {"x": {"b64": "AA==", "shape": [2, 2]}}}, (("x", (2, 2)),)),
        ({"inputs": {"x": {"b64": "AA=="}}}, ()),
        ({"inputs": 3}, ()),
        ({"shapes": {"x": 3}}, ()),
        ({"shapes": {"x": ["3"]}}, ()),
        ({}, ()),
    ],
)
def test_a_line_says_shapes_or_does_not(row: dict[str, Any], shapes: object) -> None:
    assert shapes_of_line(row) == shapes
