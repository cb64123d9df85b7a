"""The nearest word to a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """`` (did you mean x?)`` when one of ``options`` is close to ``word``, else nothing."""
    near = difflib.get_close_matches(word.lower(), list(options), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""
