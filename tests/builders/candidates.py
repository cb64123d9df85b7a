"""Candidates of one model, whose label is empty."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.space.candidate import CACHE, Candidate, FieldValue
from tuner.space.knob import Knob


def candidate_of(
    fields: Mapping[str, FieldValue] | None = None, cache_bytes: int | None = None
) -> Candidate:
    """ModelConfig path to value, and the size of the server's cache."""
    return Candidate.of_models({"": fields or {}}, cache_bytes)


def values_of(values: Mapping[str, FieldValue], owner: str = "") -> dict[Knob, FieldValue]:
    """By the knobs of one model, the size of the cache by the server's."""
    return {CACHE if p == CACHE.path else Knob(owner, p): v for p, v in values.items()}
