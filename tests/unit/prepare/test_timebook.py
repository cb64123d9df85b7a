from __future__ import annotations

import pytest

from tuner.prepare.timebook import Phase, TimeBook


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_every_second_is_in_exactly_one_phase() -> None:
    clock = Clock()
    book = TimeBook(clock)
    clock.now = 1.0
    with book.phase(Phase.SEARCHING):
        clock.now = 3.0
        with book.phase(Phase.MEASURING):
            clock.now = 10.0
        clock.now = 11.0
    clock.now = 12.5
    seconds = book.to_json()
    assert seconds["wall_s"] == 12.5
    assert seconds["searching_s"] == 3.0
    assert seconds["measuring_s"] == 7.0
    assert seconds["starting_s"] == 2.5
    assert sum(v for k, v in seconds.items() if k != "wall_s") == pytest.approx(12.5)


def test_an_error_inside_a_phase_is_booked_too() -> None:
    clock = Clock()
    book = TimeBook(clock)

    def fail() -> None:
        clock.now = 2.0
        raise RuntimeError

    with pytest.raises(RuntimeError), book.phase(Phase.DEPLOYING):
        fail()
    clock.now = 3.0
    assert book.to_json()["deploying_s"] == 2.0
    assert book.to_json()["starting_s"] == 1.0


def test_a_lap_is_what_was_spent_since_the_last_one() -> None:
    clock = Clock()
    book = TimeBook(clock)
    clock.now = 1.0
    assert book.lap()[Phase.STARTING] == 1.0
    with book.phase(Phase.MEASURING):
        clock.now = 4.0
    spent = book.lap()
    assert (spent[Phase.STARTING], spent[Phase.MEASURING]) == (0.0, 3.0)
    assert book.to_json()["wall_s"] == 4.0


def test_a_resumed_run_carries_its_seconds() -> None:
    clock = Clock()
    book = TimeBook(clock)
    book.carry({"measuring_s": 40.0, "wall_s": 50.0})
    clock.now = 1.0
    assert book.to_json()["measuring_s"] == 40.0
    assert book.to_json()["wall_s"] == 41.0
