"""Facts of a run as JSON and back, defined by nothing but frozen dataclasses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Literal, Self

from pydantic import TypeAdapter

#: Of a type whose attributes are facts: its JSON, its checks, its schema.
adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def is_empty(value: object) -> bool:
    """For ``exclude_if``: leaves values that are empty, zero, false or None out of files."""
    return not value


def is_none(value: object) -> bool:
    """For ``exclude_if``: leaves missing values out of files."""
    return value is None


class Facts:
    """A frozen dataclass that is stored as JSON, its attributes being the keys.

    Reasons are stored twice: sentences under a key, for people, and as data under the key with
    `_data` behind it, which alone is read.

    Attributes:
        unknown: How keys that it does not have are treated.
    """

    unknown: ClassVar[Literal["forbid", "ignore"]] = "forbid"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        data: dict[str, Any] = adapter(type(self)).dump_python(self, mode="json", by_alias=True)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Reads every attribute as its type; one that has a default may be missing.

        Raises:
            ValidationError: Something is missing, of another type, or unknown.
        """
        text = json.dumps(_without_texts(data))
        # strictly: no text for a number, but a list for a tuple
        made: Self = adapter(cls).validate_json(text, strict=True, extra=cls.unknown)
        return made


def _without_texts(value: Any) -> Any:
    """The JSON without the sentences that have their data beside them."""
    if isinstance(value, Mapping):
        return {k: _without_texts(v) for k, v in value.items() if f"{k}_data" not in value}
    return [_without_texts(item) for item in value] if isinstance(value, (list, tuple)) else value
