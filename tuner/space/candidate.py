"""What a trial tries: model config fields and server flags."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tuner.modelconfig.values import FieldValue

__all__ = ["Candidate", "FieldValue"]


@dataclass(frozen=True)
class Candidate:
    """One point of the space.

    Attributes:
        fields: ModelConfig path (``instance_group.count``) to value, owned fields only.
        server_args: Extra tritonserver arguments, sorted
            (``--cache-config=local,size=67108864``). A change here restarts the server.
    """

    fields: Mapping[str, FieldValue] = field(default_factory=dict)
    server_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", MappingProxyType(dict(sorted(self.fields.items()))))
        object.__setattr__(self, "server_args", tuple(sorted(self.server_args)))

    @property
    def key(self) -> str:
        """The same for equal candidates, across runs and machines (16 hex digits)."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        return hash(self.key)

    def to_json(self) -> dict[str, object]:
        fields = {k: list(v) if isinstance(v, tuple) else v for k, v in self.fields.items()}
        return {"fields": fields, "server_args": list(self.server_args)}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Candidate:
        fields = data["fields"]
        args = data["server_args"]
        assert isinstance(fields, Mapping)
        assert isinstance(args, list)
        return cls(
            {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}, tuple(args)
        )
