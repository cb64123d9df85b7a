"""What a trial tries: fields of the models' configs and the size of the server's response cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BeforeValidator, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from tuner.facts import Facts
from tuner.modelconfig.values import FieldValue
from tuner.space.cache import server_args, split_args
from tuner.space.parameters import SERVER, Knob
from tuner.spec.paths import CACHE_SIZE

__all__ = ["CACHE", "Candidate", "FieldValue"]

#: The size of the server's response cache in bytes.
CACHE = Knob(SERVER, CACHE_SIZE)


def _cache_bytes(args: Any) -> int | None:
    rest, size = split_args(args)
    if rest:
        raise ValueError(f"no candidate has the server argument {rest[0]!r}")
    return size


@dataclass(frozen=True)
class _Stored:
    """A candidate in files: the fields of each model, and what the server is started with."""

    models: dict[str, dict[str, FieldValue]]
    server_args: Annotated[int | None, BeforeValidator(_cache_bytes)] = None


@dataclass(frozen=True)
class Candidate(Facts):
    """One point of the space.

    Attributes:
        values: What the search chose, knob by knob. The size of the response cache is there only
            where there is a cache; another one restarts the server.
    """

    unknown = "ignore"

    values: Mapping[Knob, FieldValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        chosen = sorted((k, v) for k, v in self.values.items() if k != CACHE or v is not None)
        object.__setattr__(self, "values", MappingProxyType(dict(chosen)))

    @classmethod
    def of_models(
        cls, models: Mapping[str, Mapping[str, FieldValue]], cache_bytes: int | None = None
    ) -> Candidate:
        """The candidate with these fields: name of the model to ModelConfig path to value."""
        fields = {Knob(o, path): v for o, found in models.items() for path, v in found.items()}
        return cls({**fields, CACHE: cache_bytes})

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def read(stored: _Stored) -> Candidate:
            return cls.of_models(stored.models, stored.server_args)

        return core_schema.no_info_after_validator_function(
            read,
            handler.generate_schema(_Stored),
            serialization=core_schema.plain_serializer_function_ser_schema(_stored),
        )

    def of(self, owner: str) -> Mapping[str, FieldValue]:
        """ModelConfig path to value of the model with this name."""
        return self.models.get(owner, {})

    @property
    def fields(self) -> Mapping[Knob, FieldValue]:
        """What is chosen of the models' configs."""
        return {knob: v for knob, v in self.values.items() if knob.owner != SERVER}

    @cached_property
    def models(self) -> Mapping[str, Mapping[str, FieldValue]]:
        """Name of each model of which something is chosen, to path, to value."""
        owners = groupby(self.fields, key=lambda knob: knob.owner)
        return {owner: {k.path: self.values[k] for k in knobs} for owner, knobs in owners}

    def title(self, knob: Knob) -> str:
        """What a knob is called: by its path alone where only one model is searched."""
        return str(knob) if len(self.models) > 1 else knob.path

    @property
    def cache_bytes(self) -> int | None:
        """Size of the server's response cache that the search chose; None: no cache."""
        size = self.values.get(CACHE)
        return size if isinstance(size, int) else None

    @property
    def server_args(self) -> tuple[str, ...]:
        """Extra tritonserver arguments (``--cache-config=local,size=67108864``)."""
        return server_args(self.cache_bytes)

    @cached_property
    def key(self) -> str:
        """The same for equal candidates, across runs and machines (16 hex digits)."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        return hash(self.key)

    def differences(self, other: Candidate) -> int:
        """Knobs in which the two differ; the size of the cache counts as one."""
        return sum(1 for _ in self.changed(other))

    def changed(self, other: Candidate) -> Iterator[Knob]:
        """The knobs in which the two differ, in order."""
        knobs = sorted(self.values.keys() | other.values.keys())
        return (knob for knob in knobs if self.values.get(knob) != other.values.get(knob))


def _stored(candidate: Candidate) -> dict[str, Any]:
    models = {owner: dict(fields) for owner, fields in candidate.models.items()}
    return {"models": models, "server_args": list(candidate.server_args)}
