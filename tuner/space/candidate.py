"""What a trial tries: model config fields and the size of the server's response cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tuner.modelconfig.values import FieldValue
from tuner.space.cache import server_args, split_args

__all__ = ["Candidate", "FieldValue"]


@dataclass(frozen=True)
class Candidate:
    """One point of the space.

    Attributes:
        fields: ModelConfig path (``instance_group.count``) to value, owned fields only.
        cache_bytes: Size of the server's response cache that the search chose; None: no cache.
            A change here restarts the server.
    """

    fields: Mapping[str, FieldValue] = field(default_factory=dict)
    cache_bytes: int | None = None

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

    def to_json(self) -> dict[str, object]:
        fields = {k: list(v) if isinstance(v, tuple) else v for k, v in self.fields.items()}
        return {"fields": fields, "server_args": list(self.server_args)}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Candidate:
        """Raises ValueError where there are arguments that no candidate has."""
        fields = data["fields"]
        args = data["server_args"]
        assert isinstance(fields, Mapping)
        assert isinstance(args, list)
        rest, cache_bytes = split_args(args)
        if rest:
            raise ValueError(f"no candidate has the server argument {rest[0]!r}")
        return cls(
            {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}, cache_bytes
        )
