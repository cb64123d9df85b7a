"""Answers compared; none of them comes from a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tuner.load.probes.answers import Answer, ConfigAnswers, differences

TOLERANCE = 1e-3


def answer(*values: Any, dtype: str = "f4") -> Answer:
    return Answer({"y": np.array(values, dtype=dtype)})


def compared(one: Answer, other: Answer, tolerance: float = TOLERANCE) -> list[str]:
    return differences(ConfigAnswers(alone=(one,)), ConfigAnswers(alone=(other,)), tolerance)


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


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (answer(1.0, 2.0), answer(1.0, 2.5), "y differs by up to 0.5 (2 became 2.5)"),
        (answer(1.0), answer(np.nan), "y differs where it is not a finite number"),
        (answer(np.inf), answer(-np.inf), "y differs where it is not a finite number"),
        (answer(1000, 3, dtype="i8"), answer(1001, 3, dtype="i8"), "y differs in 1 of 2 values"),
        (answer(True, dtype="?"), answer(False, dtype="?"), "y differs in 1 of 1 values"),
        (answer(b"a", dtype="O"), answer(b"b", dtype="O"), "y differs in 1 of 1 values"),
        (answer(1.0), answer(1.0, 1.0), "y was float32[1] and is float32[2]"),
        (answer(1.0), answer(1.0, dtype="f8"), "y was float32[1] and is float64[1]"),
        (answer(1.0), Answer({}), "y is missing"),
        (Answer({}), answer(1.0), "y is missing"),
        (answer(1.0), Answer({}, "out of memory"), "the other fails: out of memory"),
    ],
)
def test_other_answers_are_named(one: Answer, other: Answer, expected: str) -> None:
    (found,) = compared(one, other)
    assert found.startswith("input 0 asked alone: ")
    assert found.endswith(expected)


def test_no_tolerance_means_equal() -> None:
    near = np.nextafter(np.float32(1.0), np.float32(2.0))
    assert compared(answer(1.0), answer(near)) == []
    assert len(compared(answer(1.0), answer(near), tolerance=0.0)) == 1
    assert compared(answer(1.0, np.inf), answer(1.0, np.inf), tolerance=0.0) == []


def test_what_is_wrong_in_batches_only_is_named_once_with_its_input() -> None:
    right, wrong = answer(1.0), answer(0.0)
    one = ConfigAnswers((right, right), (right,) * 4)
    other = ConfigAnswers((right, right), (right, wrong, right, wrong))
    (found,) = differences(one, other, TOLERANCE)
    assert found == "input 1 asked with others: output y differs by up to 1 (1 became 0)"
