"""Waiting for something to happen, with a deadline; and a bound nothing can meet."""

from __future__ import annotations

import time
from collections.abc import Callable

#: An SLO on the emulated accelerator that no config meets: the run ends without a confirmation.
TOO_TIGHT = "1ms"


def wait_until(there: Callable[[], bool], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not there():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
