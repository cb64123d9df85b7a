"""What a trial tries: model config fields and the size of the server's response cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from tuner.facts import Facts
from tuner.modelconfig.values import FieldValue
from tuner.space.cache import server_args, split_args

__all__ = ["Candidate", "FieldValue"]


def _cache_bytes(args: Any) -> int | None:
    rest, size = split_args(args)
    if rest:
        raise ValueError(f"no candidate has the server argument {rest[0]!r}")
    return size


#: In files it is the arguments of the server.
_CacheBytes = Annotated[
    int | None,
    Field(alias="server_args"),
    BeforeValidator(_cache_bytes),
    PlainSerializer(server_args),
]


@dataclass(frozen=True)
class Candidate(Facts):
    """One point of the space.

    Attributes:
        fields: ModelConfig path (``instance_group.count``) to value, owned fields only.
        cache_bytes: Size of the server's response cache that the search chose; None: no cache.
            A change here restarts the server.
    """

    unknown = "ignore"

    fields: Annotated[Mapping[str, FieldValue], PlainSerializer(dict)] = field(default_factory=dict)
    cache_bytes: _CacheBytes = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", MappingProxyType(dict(sorted(self.fields.items()))))

    @property
    def server_args(self) -> tuple[str, ...]:
        """Extra tritonserver arguments (``--cache-config=local,size=67108864``)."""
        return server_args(self.cache_bytes)

    @property
    def key(self) -> str:
        """The same for equal candidates, across runs and machines (16 hex digits)."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        return hash(self.key)

    def differences(self, other: Candidate) -> int:
        """Fields in which the two differ; the size of the cache counts as one."""
        paths = self.fields.keys() | other.fields.keys()
        fields = sum(self.fields.get(path) != other.fields.get(path) for path in paths)
        return fields + (self.cache_bytes != other.cache_bytes)
