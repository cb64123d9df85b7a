"""What an error that ended a run means to its user."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError, InterruptedRunError, TunerError
from tuner.hiding import without_passwords
from tuner.run.writing import cannot_write

#: No room, or no permission: of the machine, not a defect.
_NOT_WRITABLE = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO
}  # fmt: skip


def explain_error(error: Exception, directory: Path) -> Exception:
    """The error to report: a library may have turned it into another one.

    Args:
        error: The error that was raised.
        directory: The directory the run writes to, for an error that names no file.

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
    for cause in chain:
        if isinstance(cause, OSError) and cause.errno in _NOT_WRITABLE:
            return cannot_write(cause.filename or directory, cause)
        if _is_of_the_storage(cause):
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


def _is_of_the_storage(error: BaseException) -> bool:
    from sqlalchemy.exc import SQLAlchemyError

    return isinstance(error, SQLAlchemyError)
