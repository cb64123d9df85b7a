"""Text files of the user's, one number a line."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import SpecError
from tuner.regular import read_regular


def read_lines(path: Path) -> list[str]:
    """The lines of a plain file.

    Raises:
        SpecError: There is no such file, it cannot be read, is no text, or never ends (a device).
    """
    try:
        return read_regular(path).decode("utf-8").splitlines()
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not UTF-8 text") from error
