"""Candidates of one model, ``m`` unless it is named, and what belongs to the one model of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from tuner.space.candidate import CACHE, Candidate, FieldValue
from tuner.space.parameters import Knob

T = TypeVar("T")


def candidate_of(
    fields: Mapping[str, FieldValue] | None = None, cache_bytes: int | None = None, model: str = "m"
) -> Candidate:
    """ModelConfig path to value, and the size of the server's cache."""
    return Candidate.of_models({model: fields or {}}, cache_bytes)


def values_of(values: Mapping[str, FieldValue], owner: str = "m") -> dict[Knob, FieldValue]:
    """By the knobs of one model, the size of the cache by the server's."""
    return {CACHE if p == CACHE.path else Knob(owner, p): v for p, v in values.items()}


def the_one(named: Mapping[str, T]) -> T:
    """What there is only one of, whatever its name."""
    (one,) = named.values()
    return one


def fields_of(candidate: Candidate) -> Mapping[str, FieldValue]:
    """ModelConfig path to value of its one model."""
    return the_one(candidate.models) if candidate.models else {}
