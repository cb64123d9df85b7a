"""Turns reasons into sentences. Nothing in `tuner` reads them again: kinds and facts decide."""

from __future__ import annotations

from typing import Any, TypeVar

from tuner.errors import TunerError, shortened
from tuner.reason import Reason
from tuner.sentences import checks, loads, trials
from tuner.sentences.parts import SENTENCES, clause, sentence

__all__ = ["SENTENCES", "clause", "failed", "sentence"]

_Error = TypeVar("_Error", bound=TunerError)

for _table in (loads, trials, checks):
    SENTENCES.update(_table.SENTENCES)


def failed(kind: type[_Error], reason: Reason, hint: str = "", **more: Any) -> _Error:
    """The error of a class, with the reason and its sentence."""
    short = {k: shortened(v) if isinstance(v, str) else v for k, v in reason.facts.items()}
    reason = Reason(reason.kind, reason.subject, short, reason.causes)
    return kind(sentence(reason), hint, reason=reason, **more)
