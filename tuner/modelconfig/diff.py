"""A config as it was and as it will be, for people to read."""

from __future__ import annotations

import difflib
import io

_NO_NEWLINE = "\\ No newline at end of file\n"


def unified_diff(before: str, after: str, name: str) -> str:
    """The unified diff that ``patch -p1`` takes; empty when the texts are equal.

    Args:
        before: Text now.
        after: Text to come.
        name: Path shown in the header, below ``a/`` and ``b/``.
    """
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines)


def _lines(text: str) -> list[str]:
    """As `patch` takes them: only a newline ends one, not the many that Python knows."""
    return io.StringIO(text, newline="\n").readlines()
