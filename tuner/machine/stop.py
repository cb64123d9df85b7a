"""What ends a program before its time: a signal, or an error and what it means to the user."""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import ClassVar

from tuner.errors import EnvironmentNotReadyError, InterruptedRunError, TunerError
from tuner.hiding import without_passwords
from tuner.writing import cannot_write

_POLITE = "stopping after this measurement"
#: No room, or no permission: of the machine, not a defect.
_NOT_WRITABLE = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO
}  # fmt: skip


class Stop:
    """A stop request of a signal, which checkpoints apply.

    SIGINT once: the measurement under way is finished, then the run ends with its report.
    SIGINT twice, or SIGTERM: the run ends at once, its processes killed, its report written.

    Attributes:
        begun: Something that can be stopped like this has begun in this process.
    """

    begun: ClassVar[bool] = False

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
            raise InterruptedRunError("interrupted")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Directs signals to this object; restores the previous handlers afterwards.

        Only a program's main thread hears signals; another one is stopped by `requested`.
        """
        Stop.begun = True
        if threading.current_thread() is not threading.main_thread():
            yield
            return
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
            self._announce(f"{what}; press Ctrl-C again to stop at once")
            return
        self.requested = True
        self._unwinding = True
        raise InterruptedRunError("interrupted")


def explain_error(error: Exception, directory: Path) -> Exception:
    """The error to report: a library may have turned it into another one.

    ``directory``: the one the run writes to, for an error that names no file.

    Returns:
        The interruption behind it; an `EnvironmentNotReadyError` where the disk is full or a
        file or the study's storage cannot be written; else the error itself.
    """
    chain = list(_chain(error))
    for cause in chain:
        if isinstance(cause, InterruptedRunError):
            return cause
    if isinstance(error, TunerError):
        return error
    from sqlalchemy.exc import SQLAlchemyError

    for cause in chain:
        if isinstance(cause, OSError) and cause.errno in _NOT_WRITABLE:
            return cannot_write(cause.filename or directory, cause)
        if isinstance(cause, SQLAlchemyError):
            reason = without_passwords(str(cause).splitlines()[0])
            return EnvironmentNotReadyError(
                f"the study's storage failed: {reason}",
                "is its disk full, or its server gone? `tune run --resume RUN` goes on from the "
                "trials in trials.jsonl",
            )
    return error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
