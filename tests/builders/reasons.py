"""Reasons of tests: sentences that nothing is decided on, words of a server, and their texts."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.errors import ModelFailsError
from tuner.reason import Reason, ReasonKind
from tuner.sentences import failed, sentence


def said(text: str) -> Reason:
    """A sentence."""
    return Reason.of_text(text)


def server_says(words: str) -> Reason:
    """Words of a server."""
    return Reason(ReasonKind.SERVER_SAYS, facts={"words": words})


def model_fails(words: str) -> ModelFailsError:
    """The error of a model whose every answer is an error."""
    return failed(ModelFailsError, Reason(ReasonKind.MODEL_FAILS, facts={"words": words}))


def texts(reasons: Iterable[Reason | None]) -> list[str]:
    """Their sentences."""
    return [sentence(reason) for reason in reasons if reason is not None]
