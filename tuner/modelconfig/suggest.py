"""Did you mean: the nearest of the names that would have been right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``did you mean A or B?``; empty when nothing known is close."""
    close = difflib.get_close_matches(name, list(known), n=2, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else ""
