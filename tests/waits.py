"""Waiting for something to happen, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(there: Callable[[], bool], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not there():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
