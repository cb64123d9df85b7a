"""What the lines of a recording hold becomes what requests carry, in their order.

What does not fit the model is told in `golden/messages`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from builders.messages_recordings import IDS, contents

from tuner.errors import LoadFailedError, SpecError
from tuner.load.traffic.wire import ContentSize, Tensors


def ids_in(inferences: Sequence[Tensors]) -> list[list[int]]:
    return [np.frombuffer(one["ids"].raw, "i4").tolist() for one in inferences]


def test_requests_carry_the_content_of_their_lines_in_the_requested_order(tmp_path: Path) -> None:
    rows = [{"inputs": {"ids": {"content": [k] * (k + 1), "shape": [k + 1]}}} for k in range(3)]
    lines = contents(tmp_path, *rows)
    given = lines.of_run(1, 3, np.array([2, 0, 2]))
    assert ids_in(given.inferences) == [[2, 2, 2], [0], [2, 2, 2]]
    assert ids_in(lines.first(2)) == [[0], [1, 1]]
    assert not lines.remembered(1)


def test_a_load_of_other_arrivals_has_requests_in_a_row_from_a_place_of_its_seed(
    tmp_path: Path,
) -> None:
    rows = [{"inputs": {"ids": {"content": [k], "shape": [1]}}} for k in range(50)]
    lines = contents(tmp_path, *rows)
    one, other = (np.ravel(ids_in(lines.of_run(seed, 60).inferences)).tolist() for seed in (1, 2))
    assert np.unique(np.diff(one) % 50).tolist() == [1]
    assert len(one) == 60
    assert one != other


def test_lines_with_shapes_carry_new_random_values_of_these(tmp_path: Path) -> None:
    lines = contents(
        tmp_path, {"shapes": {"ids": [64]}}, {"shapes": {"ids": [3]}}, int_range=(7, 9)
    )
    one, other = (ids_in(lines.of_run(1, 2, np.array([0, 1])).inferences) for _ in range(2))
    assert [len(ids) for ids in one] == [64, 3]
    assert set(one[0]) == {7, 8, 9}
    assert one != other
    assert ids_in(lines.first(2)) == ids_in(lines.first(2))


def test_lines_with_entries_carry_those_of_the_input_file(tmp_path: Path) -> None:
    file = tmp_path / "texts.json"
    entries = [{"ids": {"content": [k], "shape": [1]}} for k in range(4)]
    file.write_text(json.dumps({"data": entries}))
    lines = contents(tmp_path, {"entry": 3}, {"entry": 0}, file=str(file))
    assert ids_in(lines.of_run(1, 2, np.array([0, 1, 0])).inferences) == [[3], [0], [3]]


def test_valid_lines_come_first_and_all_mistakes_are_reported_together(tmp_path: Path) -> None:
    good, bad = {"shapes": {"ids": [2], "mask": [2]}}, {"shapes": {"ids": [0]}}
    checked = contents(tmp_path, bad, good, bad).checked()
    seen = {name: size.shape for name, size in next(checked).items()}
    with pytest.raises(SpecError) as caught:
        next(checked)
    assert seen == {"ids": (2,), "mask": (2,)}
    assert [line.split(":")[1] for line in caught.value.message.splitlines()] == ["1", "3"]


def test_a_plan_draws_nothing_of_what_lines_give_as_shapes(tmp_path: Path) -> None:
    """200 requests of 1 GB each."""
    lines = contents(tmp_path, *([{"shapes": {"ids": [250_000_000]}}] * 200))
    assert {size["ids"] for size in lines.checked()} == {ContentSize((250_000_000,), 10**9)}


def test_requests_of_a_measurement_that_take_too_much_are_refused_before_they_are_drawn(
    tmp_path: Path,
) -> None:
    rows = [{"shapes": {"ids": [1]}}, *([{"shapes": {"ids": [200_000_000]}}] * 2)]
    lines = contents(tmp_path, *rows, tensors=(IDS,))
    with pytest.raises(LoadFailedError, match="more than 1024 MiB"):
        lines.of_run(1, 3, np.array([0, *([1, 2] * 4)]))
    assert [path.name for path in tmp_path.iterdir()] == ["requests.jsonl"]
