"""Transactions that no signal interrupts.

A signal handler that raises inside a transaction leaves a connection that holds the database's
lock, and the next write of the same process waits for that lock until it times out.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delays SIGINT and SIGTERM until the end of the block.

    No effect in other threads: Python runs signal handlers in the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda n, _: heard.append(n))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for n in heard:
            signal.raise_signal(n)
