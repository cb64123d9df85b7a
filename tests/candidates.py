"""Candidates of one model, whose label is empty."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.space.candidate import Candidate, FieldValue


def candidate_of(
    fields: Mapping[str, FieldValue] | None = None, cache_bytes: int | None = None
) -> Candidate:
    """ModelConfig path to value, and the size of the server's cache."""
    return Candidate.of_models({"": fields or {}}, cache_bytes)
