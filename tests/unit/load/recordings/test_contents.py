"""What the lines of a recording hold becomes what requests carry, in their order."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.errors import SpecError
from tuner.load.recordings.contents import RecordedContents
from tuner.load.recordings.lines import RecordedStream, read_recording
from tuner.load.traffic.encoding import TensorShape
from tuner.spec.workload import RecordingInputs

IDS = TensorShape("ids", "INT32", (-1,))
MASK = TensorShape("mask", "INT32", (2,), optional=True)


def contents(
    directory: Path,
    *rows: dict[str, Any],
    tensors: tuple[TensorShape, ...] = (IDS, MASK),
    **spec: Any,
) -> RecordedContents:
    path = directory / "requests.jsonl"
    lines = [json.dumps({"due_s": k, **row}) for k, row in enumerate(rows)]
    path.write_text("\n".join(lines) + "\n")
    recorded = RecordedStream(read_recording(path), np.arange(len(rows)))
    inputs = RecordingInputs.model_validate({"kind": "recording", **spec})
    return RecordedContents(inputs, recorded, tensors, directory)


def ids_in(path: Path) -> list[list[int]]:
    entries = json.loads(path.read_text())["data"]
    return [np.frombuffer(base64.b64decode(e["ids"]["b64"]), "i4").tolist() for e in entries]


def test_requests_carry_what_their_lines_hold_in_the_order_asked(tmp_path: Path) -> None:
    rows = [{"inputs": {"ids": {"content": [k] * (k + 1), "shape": [k + 1]}}} for k in range(3)]
    held = contents(tmp_path, *rows)
    given = held.file(1, 3, np.array([2, 0, 2]))
    assert ids_in(given.path) == [[2, 2, 2], [0], [2, 2, 2]]
    assert ids_in(held.first(2)) == [[0], [1, 1]]
    assert held.remembered(1) is None


def test_a_load_of_other_arrivals_has_requests_in_a_row_from_a_place_of_its_seed(
    tmp_path: Path,
) -> None:
    rows = [{"inputs": {"ids": {"content": [k], "shape": [1]}}} for k in range(50)]
    held = contents(tmp_path, *rows)
    one, other = (np.ravel(ids_in(held.file(seed, 60).path)).tolist() for seed in (1, 2))
    assert np.unique(np.diff(one) % 50).tolist() == [1]
    assert len(one) == 60
    assert one != other


def test_a_file_of_one_measurement_is_gone_when_the_next_begins(tmp_path: Path) -> None:
    held = contents(tmp_path, *([{"shapes": {"ids": [4]}}] * 3))
    first = held.file(1, 3).path
    again = held.file(1, 3).path
    assert not first.exists()
    assert again.exists()


def test_lines_with_shapes_carry_new_random_values_of_these(tmp_path: Path) -> None:
    held = contents(tmp_path, {"shapes": {"ids": [64]}}, {"shapes": {"ids": [3]}}, int_range=(7, 9))
    one, other = (ids_in(held.file(1, 2, np.array([0, 1])).path) for _ in range(2))
    assert [len(ids) for ids in one] == [64, 3]
    assert set(one[0]) == {7, 8, 9}
    assert one != other
    assert ids_in(held.first(2)) == ids_in(held.first(2))


def test_lines_with_entries_carry_those_of_the_input_file(tmp_path: Path) -> None:
    file = tmp_path / "texts.json"
    entries = [{"ids": {"content": [k], "shape": [1]}} for k in range(4)]
    file.write_text(json.dumps({"data": entries}))
    held = contents(tmp_path, {"entry": 3}, {"entry": 0}, file=str(file))
    assert ids_in(held.file(1, 2, np.array([0, 1, 0])).path) == [[3], [0], [3]]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "2:1: it holds no inputs: say what requests carry, such as inputs: {kind: ran"),
    "another input": (
        {"inputs": {"idz": [1]}},
        "2:14: inputs: idz is no input of the model (did you mean ids?); it has no ids",
    ),
    "a text": (
        {"inputs": {"ids": {"content": ["a"], "shape": [1]}}},
        '2:14: inputs: ids: "a" is no INT32',
    ),
    "an open shape": ({"inputs": {"ids": [1]}}, "2:14: inputs: ids: it has no shape, and [-1] is"),
    "two dimensions": (
        {"shapes": {"ids": [2, 3]}},
        "2:14: ids cannot be [2, 3], the model has [-1]",
    ),
    "no dimension": ({"shapes": {"ids": [0]}}, "2:14: ids cannot be [0], the model has [-1]"),
    "another shape": (
        {"shapes": {"idz": [3]}},
        "2:14: shapes are by input, and these are ids, mask",
    ),
    "a list of shapes": ({"shapes": [3]}, "2:14: shapes are by input, and these are ids, mask"),
    "an entry of no file": ({"entry": 1}, "2:14: entry of which file? Write inputs: {kind: rec"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_the_model_is_told_with_its_place(tmp_path: Path, name: str) -> None:
    row, told = BAD[name]
    fits = {"shapes": {"ids": [2]}}
    with pytest.raises(SpecError) as caught:
        list(contents(tmp_path, fits, row, fits).checked())
    assert caught.value.message.startswith(f"{tmp_path / 'requests.jsonl'}:{told}")


@pytest.mark.parametrize("number", [4, -1, True, "1"])
def test_an_entry_that_the_file_does_not_have_is_told(tmp_path: Path, number: object) -> None:
    file = tmp_path / "texts.json"
    file.write_text(json.dumps({"data": [{"ids": {"content": [1], "shape": [1]}}] * 4}))
    held = contents(tmp_path, {"entry": 0}, {"entry": number}, file=str(file))
    with pytest.raises(
        SpecError, match=r":2:14: .*texts.json has no entry .*: they count from 0 to 3"
    ):
        list(held.checked())


def test_all_that_is_wrong_is_told_and_what_fits_is_seen_before(tmp_path: Path) -> None:
    good, bad = {"shapes": {"ids": [2], "mask": [2]}}, {"shapes": {"ids": [0]}}
    checked = contents(tmp_path, bad, good, bad).checked()
    seen = {name: content.shape for name, content in next(checked).items()}
    with pytest.raises(SpecError) as caught:
        next(checked)
    assert seen == {"ids": (2,), "mask": (2,)}
    assert [line.split(":")[1] for line in caught.value.message.splitlines()] == ["1", "3"]
