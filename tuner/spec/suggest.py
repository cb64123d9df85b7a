"""The closest of the words that would have been valid."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: No field, metric or model that Triton knows has a longer name.
_LONGEST = 255


def did_you_mean(name: str, known: Iterable[str], most: int = 2) -> str:
    """``did you mean A or B?``; empty when nothing known is close."""
    typed = name if len(name) <= _LONGEST else ""  # of megabytes it would take seconds
    close = difflib.get_close_matches(typed, list(known), n=most, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else ""


def in_brackets(word: str, options: Iterable[str]) -> str:
    """`` (did you mean x?)`` to end a message with, whatever the word's case; or nothing."""
    near = did_you_mean(word.lower(), options, most=1)
    return f" ({near})" if near else ""
