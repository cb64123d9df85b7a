"""Early ends of a program: stop signals, and the error to report to the user."""

from __future__ import annotations

import errno
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import ClassVar, NoReturn

from tuner.errors import EnvironmentNotReadyError, InterruptedRunError, TunerError
from tuner.hiding import without_passwords
from tuner.machine.uninterrupted import signals_to
from tuner.writing import cannot_write

_POLITE = "stopping after this measurement"
#: Errors of the machine (no space, no permission), not defects of tune.
_NOT_WRITABLE = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO
}  # fmt: skip


class Stop:
    """A stop request by a signal. Checkpoints raise `InterruptedRunError` for it.

    SIGINT once: the run finishes the current measurement, then ends with its report.
    SIGINT twice, or SIGTERM: the run ends at once; it kills its processes and writes its report.

    Attributes:
        begun: Whether a run or check has begun in this process.
        requested: Whether a stop was requested.
    """

    begun: ClassVar[bool] = False

    def __init__(self, announce: Callable[[str], None] = lambda _: None) -> None:
        self._announce = announce
        self.requested = False
        self._raised: InterruptedRunError | None = None
        self._measured = False

    def measured(self) -> None:
        """Declares all measurements complete: later, a single SIGINT does not stop the run.

        Raises:
            InterruptedRunError: A stop was requested before.
        """
        self._measured = True
        self.checkpoint()

    def checkpoint(self) -> None:
        """Raises InterruptedRunError if a stop was requested, but not while the run ends of it."""
        if self.requested and not self._ending():
            self._interrupt()

    def explain(self, error: Exception, directory: Path) -> Exception:
        """The error to report: the interruption if there was one, else `explain_error`'s."""
        return self._raised or explain_error(error, directory)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handles signals while the context is open; restores the previous handlers afterwards.

        Python handles signals in the main thread only; set `requested` to stop another thread.

        Raises:
            InterruptedRunError: Instead of any error that leaves the context after a stop: code in
                C, such as an import of NumPy, makes an unrelated error of an interruption.
        """
        Stop.begun = True
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        try:
            with signals_to(self._heard):
                yield
        except Exception as error:
            if self._raised in (None, error):
                raise
            raise self._raised from None

    def _ending(self) -> bool:
        """Whether the run ends because of the interruption; not if a library caught that."""
        return self._raised is not None and sys.exc_info()[1] is not None

    def _interrupt(self) -> NoReturn:
        self._raised = InterruptedRunError("interrupted")
        raise self._raised

    def _heard(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._ending():
            return
        if number == signal.SIGINT and not self.requested:
            self.requested = True
            what = "all measurements are complete: storing them" if self._measured else _POLITE
            self._announce(f"{what}; press Ctrl-C again to stop at once")
            return
        self.requested = True
        self._interrupt()


def explain_error(error: Exception, directory: Path) -> Exception:
    """The error to report, even if a library has wrapped it.

    Args:
        directory: Directory of the run, for an error that names no file.

    Returns:
        The interruption that caused the error; an `EnvironmentNotReadyError` if the disk is full or
        a file or the study cannot be written; else the error itself.
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
                f"cannot write the study: {reason}",
                "is the disk full? `tune run --resume RUN` continues from the trials in "
                "trials.jsonl",
            )
    return error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
