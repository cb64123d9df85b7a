from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.score.capacity import Bracket, LevelRange, Probe, find_capacity


def probe_of(capacity: float, asked: list[float]):  # type: ignore[no-untyped-def]
    def probe(level: float) -> Probe:
        asked.append(level)
        return Probe(level, level <= capacity, min(level, 1.1 * capacity))

    return probe


@given(st.floats(2, 50_000), st.floats(1, 100_000))
def test_the_capacity_is_bracketed_from_any_start(capacity: float, start: float) -> None:
    asked: list[float] = []
    levels = LevelRange(0.1, 1e5)
    bracket = find_capacity(probe_of(capacity, asked), start, levels, 0.05, at_most=40)
    assert bracket.closed(0.05)
    assert bracket.passed is not None
    assert bracket.failed is not None
    assert bracket.passed <= capacity < bracket.failed


@pytest.mark.parametrize("start", [0.3, 0.8, 1.3, 3.0])
def test_a_near_start_needs_few_probes(start: float) -> None:
    asked: list[float] = []
    bracket = find_capacity(probe_of(1000.0, asked), 1000 * start, LevelRange(1, 1e5), 0.05)
    assert bracket.closed(0.05)
    assert len(asked) <= 8


def test_what_an_overloaded_server_answers_bounds_the_next_level() -> None:
    asked: list[float] = []
    find_capacity(probe_of(100.0, asked), 5000.0, LevelRange(1, 1e5), 0.05)
    assert asked[1] < 110.0


def test_no_level_is_asked_twice() -> None:
    asked: list[float] = []
    find_capacity(probe_of(7.0, asked), 1, LevelRange(1, 256, whole=True), 0.01, at_most=30)
    assert len(asked) == len(set(asked))
    assert all(level == int(level) for level in asked)


def test_the_highest_level_ends_the_search() -> None:
    bracket = find_capacity(probe_of(1e9, []), 100, LevelRange(1, 1000))
    assert bracket == Bracket(1000.0, None)


def test_the_lowest_level_ends_the_search() -> None:
    bracket = find_capacity(probe_of(0.0, []), 100, LevelRange(10, 1000), at_most=20)
    assert bracket == Bracket(None, 10.0)


def test_a_pass_above_a_failure_takes_the_failure_back() -> None:
    bracket = Bracket(50, 80).with_probe(Probe(90, passed=True))
    assert bracket == Bracket(90, None)
