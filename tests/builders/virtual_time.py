"""An event loop whose time passes in no time: what it waits for is there at once.

So that a test of when things happen does not depend on how busy the machine is.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Coroutine
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import pytest


class _Clock:
    def __init__(self) -> None:
        self.now_ns = 1_000_000_000


class _Selector(selectors.SelectSelector):
    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "it would wait for ever"
        self._clock.now_ns += math.ceil(max(timeout, 0.0) * 1e9)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: _Clock) -> None:
        super().__init__(_Selector(clock))
        self._clock = clock

    def time(self) -> float:
        return self._clock.now_ns / 1e9


T = TypeVar("T")


def run_in_virtual_time(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, coroutine: Coroutine[Any, Any, T]
) -> T:
    """Runs the coroutine on such a loop, with the clocks that the module reads as its own.

    Args:
        monkeypatch: Of the test.
        module: Whose global ``time`` is replaced.
        coroutine: What to run.
    """
    clock = _Clock()

    def now_ns() -> int:
        clock.now_ns += 1000  # whatever is done takes a microsecond
        return clock.now_ns

    time_module = SimpleNamespace(
        monotonic_ns=now_ns,
        time_ns=lambda: 1_795_000_000_000_000_000 + now_ns(),
        thread_time=lambda: clock.now_ns / 1e9,
        process_time=lambda: clock.now_ns / 1e9,
    )
    with monkeypatch.context() as patched:
        patched.setattr(module, "time", time_module)
        with asyncio.Runner(loop_factory=lambda: _Loop(clock)) as runner:
            return runner.run(coroutine)
