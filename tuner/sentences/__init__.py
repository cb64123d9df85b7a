"""Turns reasons into sentences. Nothing in `tuner` reads them again: kinds and facts decide."""

from __future__ import annotations

from typing import Any, TypeVar

from tuner.errors import TunerError, shortened
from tuner.reason import Reason, ReasonKind
from tuner.sentences import checks, loads, trials
from tuner.sentences.parts import Sentences

_Error = TypeVar("_Error", bound=TunerError)

#: Of each kind.
SENTENCES: Sentences = {**loads.SENTENCES, **trials.SENTENCES, **checks.SENTENCES}


def sentence(reason: Reason) -> str:
    """The whole of it, with its subject."""
    text = clause(reason)
    names_itself = reason.kind is ReasonKind.BEST_OTHER_FALLS_SHORT
    return f"{reason.subject}: {text}" if reason.subject and not names_itself else text


def clause(reason: Reason) -> str:
    """What is said of its subject."""
    if (kept := reason.facts.get("sentence")) is not None:
        return str(kept)
    words = SENTENCES[reason.kind]
    return words if isinstance(words, str) else words(reason, reason.facts)


def failed(kind: type[_Error], reason: Reason, hint: str = "", **more: Any) -> _Error:
    """The error of a class, with the reason and its sentence."""
    short = {k: shortened(v) if isinstance(v, str) else v for k, v in reason.facts.items()}
    reason = Reason(reason.kind, reason.subject, short, reason.causes)
    return kind(sentence(reason), hint, reason=reason, **more)
