"""Who measures has the machine to itself; how many workers there are."""

from __future__ import annotations

import threading
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import turns
from turns import LOADING, MEASURING, Turns

TESTS = Path(__file__).parents[2]
_A_MOMENT_S = 0.1


class Worker:
    """Asks for its turn in a thread of its own."""

    def __init__(self, directory: Path, *, alone: bool) -> None:
        self.turns = Turns(directory)
        self.inside = threading.Event()
        self._alone = alone
        self._thread = threading.Thread(target=self._enter, daemon=True)
        self._thread.start()

    def _enter(self) -> None:
        self.turns.enter(alone=self._alone)
        self.inside.set()

    def waits(self) -> bool:
        return not self.inside.wait(_A_MOMENT_S)

    def leave(self) -> None:
        self.turns.leave()


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Turns]:
    worker = Turns(tmp_path)
    yield worker
    worker.close()


def test_tests_that_do_not_measure_run_side_by_side(tmp_path: Path, first: Turns) -> None:
    first.enter(alone=False)
    assert not Worker(tmp_path, alone=False).waits()


@pytest.mark.parametrize("alone", [True, False])
def test_beside_one_that_measures_nothing_runs(tmp_path: Path, first: Turns, alone: bool) -> None:
    first.enter(alone=True)
    other = Worker(tmp_path, alone=alone)
    assert other.waits()
    first.leave()
    assert other.inside.wait(10)


def test_one_that_measures_waits_for_those_that_run_and_nobody_overtakes_it(
    tmp_path: Path, first: Turns
) -> None:
    first.enter(alone=False)
    measuring = Worker(tmp_path, alone=True)
    assert measuring.waits()
    late = Worker(tmp_path, alone=False)
    assert late.waits()
    first.leave()
    assert measuring.inside.wait(10)
    assert late.waits()
    measuring.leave()
    assert late.inside.wait(10)


def test_who_is_alone_and_asks_again_stays_alone(tmp_path: Path, first: Turns) -> None:
    first.enter(alone=True)
    first.enter(alone=False)
    assert first.alone
    assert Worker(tmp_path, alone=False).waits()


def test_what_is_listed_exists_and_what_measures_puts_load_on_a_server() -> None:
    assert [place for place in (*LOADING, *MEASURING) if not (TESTS / place).exists()] == []
    assert [place for place in MEASURING if not place.startswith(LOADING)] == []


@pytest.mark.parametrize(
    ("arguments", "capture", "some"),
    [
        ([str(TESTS)], "fd", True),
        ([str(TESTS / "unit")], "fd", True),
        ([str(TESTS / "unit" / "ci")], "fd", False),
        ([__file__], "fd", False),
        ([f"{__file__}::test_one", f"{__file__}::test_two"], "fd", False),
        ([str(TESTS)], "no", False),
    ],
)
def test_a_few_files_and_a_visible_output_need_no_workers(
    arguments: list[str], capture: str, some: bool
) -> None:
    config = SimpleNamespace(args=arguments, option=Namespace(capture=capture))
    assert bool(turns.pytest_xdist_auto_num_workers(config)) is some  # type: ignore[arg-type]
