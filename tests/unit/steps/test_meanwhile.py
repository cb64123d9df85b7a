"""What is made ready in a thread beside a run, and when that thread rests."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tuner.bench.timebook import Phase, TimeBook
from tuner.spec.model import Spec
from tuner.steps import meanwhile as module
from tuner.steps.meanwhile import done_aside, meanwhile

PATIENCE_S = 10.0


class Steps:
    """A task of many pieces; ``count`` of them are done."""

    def __init__(self, most: int = 10**9) -> None:
        self.count, self.most = 0, most
        self.moved = threading.Condition()

    def __call__(self, between: Callable[[], None]) -> None:
        while self.count < self.most:
            between()
            with self.moved:
                self.count += 1
                self.moved.notify_all()

    def wait_for(self, count: int) -> None:
        with self.moved:
            assert self.moved.wait_for(lambda: self.count >= count, PATIENCE_S)


def test_nothing_is_done_aside_while_load_is_on() -> None:
    book, task = TimeBook(), Steps()
    with done_aside([task], book):
        task.wait_for(2)
        with book.phase(Phase.SEARCHING), book.phase(Phase.MEASURING):
            before = task.count
            threading.Event().wait(0.05)
            assert task.count == before
        task.wait_for(before + 2)


def test_a_load_waits_until_the_piece_at_work_is_done() -> None:
    book, begun, go_on = TimeBook(), threading.Event(), threading.Event()
    done: list[str] = []

    def piece(between: Callable[[], None]) -> None:
        between()
        begun.set()
        assert go_on.wait(PATIENCE_S)
        done.append("piece")

    with done_aside([piece], book):
        assert begun.wait(PATIENCE_S)
        threading.Timer(0.05, go_on.set).start()
        with book.phase(Phase.MEASURING):
            done.append("load")
    assert done == ["piece", "load"]


def test_the_end_of_a_run_does_not_wait_for_what_is_left() -> None:
    task, never = Steps(), Steps()
    with done_aside([task, never], TimeBook()):
        task.wait_for(1)
    assert never.count == 0
    assert "meanwhile" not in {t.name for t in threading.enumerate()}


def test_what_fails_does_not_keep_the_rest_from_being_done() -> None:
    def broken(_: Callable[[], None]) -> None:
        raise ImportError("no such library")

    task = Steps(most=1)
    with done_aside([broken, task], TimeBook()):
        task.wait_for(1)
    assert task.count == 1


@pytest.mark.parametrize(("strategy", "compiled"), [("twin", 1), ("random", 0)])
def test_the_simulator_is_compiled_for_the_strategy_that_simulates(
    strategy: str, compiled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = Steps(most=1)
    last = Steps(most=1)
    monkeypatch.setattr(module, "compile_simulator", compiler)
    monkeypatch.setattr(module, "_SOON", ("colorsys",))
    monkeypatch.setattr(module, "_LATE", ())
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    facts: dict[str, Any] = {"model": "m", "repository": "r", "slo": ["p99_latency <= 40ms"]}
    facts |= {"space": {"max_batch_size": {"int": [1, 2]}}, "search": {"strategy": strategy}}
    real = module.done_aside
    monkeypatch.setattr(module, "done_aside", lambda tasks, book: real([*tasks, last], book))
    with meanwhile(Spec.model_validate(facts), TimeBook()):
        last.wait_for(1)
        with warnings.catch_warnings(record=True) as told:
            warnings.warn("``constraints_func`` is an experimental feature.", stacklevel=1)
        assert told == []  # Optuna's, though the thread puts back the filters that it found
    assert compiler.count == compiled
    assert "colorsys" in sys.modules
