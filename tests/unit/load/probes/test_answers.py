"""Answers compared; none of them comes from a model. Others are told in `golden/told`."""

from __future__ import annotations

import numpy as np
import pytest
from builders.told_probes import answer, compared

from tuner.load.probes.answers import Answer


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (answer(1.0, 2.0), answer(1.0005, 2.0)),
        (answer(1.0, 1e-9), answer(1.0, 2e-4)),  # nearly zero beside the other
        (answer(np.nan, np.inf, 1.0), answer(np.nan, np.inf, 1.0)),
        (answer(np.nan), answer(np.nan)),
        (answer(), answer()),
        (answer(3, dtype="i8"), answer(3, dtype="i8")),
        (answer(True, dtype="?"), answer(True, dtype="?")),
        (answer(b"text", dtype="O"), answer(b"text", dtype="O")),
        (Answer({}, "negative input"), Answer({}, "negative input of 3")),
        (Answer({}, "exceeds maximum queue size", rejected=True), answer(1.0)),
    ],
)
def test_the_same_answers(one: Answer, other: Answer) -> None:
    assert compared(one, other) == []


def test_no_tolerance_means_equal() -> None:
    near = np.nextafter(np.float32(1.0), np.float32(2.0))
    assert compared(answer(1.0), answer(near)) == []
    assert len(compared(answer(1.0), answer(near), tolerance=0.0)) == 1
    assert compared(answer(1.0, np.inf), answer(1.0, np.inf), tolerance=0.0) == []
