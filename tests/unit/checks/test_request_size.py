"""What of requests is told before they are sent; `golden/messages` holds what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.messages_requests import CHARGE, SMALL, TEXT, made_up, played, recorded, request_notes

from tuner.spec.mistakes import FindingSeverity


@pytest.mark.parametrize(
    ("count", "said"), [(4, False), (1 << 18, False), ((1 << 18) + 1, True), (1 << 19, True)]
)
def test_more_than_a_mebibyte_is_large(count: int, said: bool, tmp_path: Path) -> None:
    large = request_notes(made_up(tmp_path, f"[ {count} ]"), FindingSeverity.NOTED)
    assert bool(large) is said


@pytest.mark.parametrize(
    ("inputs", "entries"),
    [
        (CHARGE.replace("INT32", "FP32"), [{"charge": [1]}, {"charge": [[2]]}]),
        (CHARGE, [{"charge": {"b64": "AAAAAA=="}, "model": "m"}]),
        (CHARGE, [{"charge": {"content": {"b64": "AAAAAA=="}, "shape": [1]}}]),
        (CHARGE + SMALL, [{"charge": [1]}, {"charge": [1], "x": [1, 2]}]),
        (TEXT, [{"text": {"content": ["a", "bé"], "shape": [2]}}]),
        (CHARGE.replace("TYPE_INT32", "TYPE_BOOL"), [{"charge": [True]}]),
    ],
)
def test_all_forms_of_perf_analyzer_are_taken(
    tmp_path: Path, inputs: str, entries: list[Any]
) -> None:
    (figures,) = recorded(tmp_path, inputs, *entries).recorded.values()
    assert figures.count == len(entries)


def test_a_list_in_the_list_is_a_sequence_of_requests(tmp_path: Path) -> None:
    charge = {"charge": [1]}
    job = played(tmp_path, [charge, charge], [charge] * 3)
    (figures,) = job.case.recorded.values()
    assert (figures.count, figures.lengths) == (5, (2, 3))
