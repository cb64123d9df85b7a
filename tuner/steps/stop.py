"""Stopping a run from outside: politely at the first signal, at once at the second."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from tuner.errors import InterruptedRunError

_POLITE = "stopping after this measurement"


class Stop:
    """Asked for by a signal, heeded at checkpoints.

    SIGINT once: the measurement under way is finished, then the run ends with its report.
    SIGINT twice, or SIGTERM: the run ends at once, its processes killed, its report written.
    """

    def __init__(self, announce: Callable[[str], None] = lambda _: None) -> None:
        self._announce = announce
        self.requested = False
        self._unwinding = False
        self._measured = False

    def measured(self) -> None:
        """Nothing is measured from now on, so that a polite request comes too late.

        Raises:
            InterruptedRunError: A stop was asked for before.
        """
        self._measured = True
        self.checkpoint()

    def checkpoint(self) -> None:
        """Raises InterruptedRunError when a stop was asked for."""
        if self.requested and not self._unwinding:
            self._unwinding = True
            raise InterruptedRunError("stopped by a signal")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Directs signals to this object; restores the previous handlers afterwards."""
        before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, self._heard)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._unwinding:
            return  # children are being killed and files written: let that end
        if number == signal.SIGINT and not self.requested:
            self.requested = True
            what = "all is measured, storing it" if self._measured else _POLITE
            self._announce(f"{what}; again to stop at once")
            return
        self.requested = True
        self._unwinding = True
        raise InterruptedRunError("stopped by a signal")
