"""What a run says of the queues of an ensemble's steps before it begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from builders.spaces import INSTANCES, space_of

from tuner.checks.models import note_queues
from tuner.spec.paths import QUEUE_POLICY, QUEUE_TIMEOUT

BOUND = f"{QUEUE_POLICY}.max_queue_size"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (BOUND, ["requests that a full queue of the step two refuses"]),
        (QUEUE_TIMEOUT, []),  # which the ensemble hands on as an error
        (INSTANCES, []),
    ],
)
def test_step_with_a_searched_queue_size_is_reported(path: str, expected: list[str]) -> None:
    searched = {"int": [1, 4], "or": 0} if path == BOUND else {"int": [1, 4]}
    models = {"e": {}, "one": {}, "two": {"space": {path: searched}}}
    space = space_of({"models": models, "streams": {"all": {"model": "e"}}})
    job: Any = SimpleNamespace(served=space.served, space=space)
    notes = [note.message for note in note_queues(job)]
    assert len(notes) == len(expected)
    assert all(note.startswith(start) for note, start in zip(notes, expected, strict=True))
