"""A spec with all its defaults written out, for `tune plan`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from tuner.spec.model import Spec
from tuner.spec.yaml_tree import dump_scalar

_MARK = "  # default"


@dataclass(frozen=True)
class _Shown:
    """A value as it is written; ``default``: the user did not set it."""

    text: str
    default: bool


def effective_yaml(spec: Spec) -> str:
    """The spec as YAML with every field; those the user did not set end in ``# default``.

    Loading the text gives an equal spec, where ``server.environment`` gives no values: they are
    hidden.
    """
    return "\n".join(_lines(spec.as_written(_fields(spec, default=False)), 0)) + "\n"


def _fields(model: BaseModel, *, default: bool) -> dict[str, Any]:
    plain = model.model_dump(mode="json", by_alias=True)
    fields = {}
    for name, info in type(model).model_fields.items():
        key = info.alias or name
        if key not in plain:
            continue  # written only where it is given
        is_default = default or name not in model.model_fields_set
        fields[key] = _shown(key, getattr(model, name), plain[key], default=is_default)
    return fields


def _shown(key: str, value: Any, plain: Any, *, default: bool) -> Any:
    if isinstance(value, BaseModel):
        return _fields(value, default=default)
    if isinstance(value, dict) and (value or key == "space"):
        return {name: _shown(name, v, plain[name], default=default) for name, v in value.items()}
    return _Shown(_switches(key, dump_scalar(plain)), default)


def _lines(fields: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key, value in fields.items():
        start = f"{'  ' * depth}{dump_scalar(key)}:"
        if isinstance(value, _Shown):
            yield f"{start} {value.text}{_MARK if value.default else ''}"
        elif not value:
            yield f"{start} {{}}{_MARK}"
        else:
            yield start + (_MARK if _is_default(value) else "")
            yield from _lines(value, depth + 1)


def _is_default(value: Any) -> bool:
    """Nothing in it was set."""
    if isinstance(value, _Shown):
        return value.default
    return all(map(_is_default, value.values()))


def _switches(key: str, text: str) -> str:
    """Choices between off and on read better in the words of the spec."""
    if key != "choice":
        return text
    words = {"true": "on", "false": "off"}
    items = text.removeprefix("[").removesuffix("]").split(", ")
    return f"[{', '.join(words.get(item, item) for item in items)}]"
