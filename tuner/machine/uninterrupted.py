"""Transactions that no signal interrupts.

A signal handler that raises inside a transaction leaves a connection that holds the database's
lock, and the next write of the same process waits for that lock until it times out.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def signals_to(
    handler: Callable[[int, FrameType | None], object], instead_of: Collection[object] = ()
) -> Iterator[None]:
    """Calls ``handler`` for SIGINT and SIGTERM; restores the previous handlers afterwards.

    ``instead_of``: other handlers than these stay; empty: none stays.
    """
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    before = {s: h for s, h in handlers.items() if not instead_of or h in instead_of}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delays SIGINT and SIGTERM until the end of the block.

    No effect in other threads: Python runs signal handlers in the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    try:
        with signals_to(lambda n, _: heard.append(n)):
            yield
    finally:
        for n in heard:
            signal.raise_signal(n)
