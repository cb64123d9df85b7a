"""A spec with all its defaults written out, for `tune plan`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from tuner.spec.model import Spec
from tuner.spec.yaml_tree import dump_scalar

_MARK = "  # default"


def effective_yaml(spec: Spec) -> str:
    """The spec as YAML with every field; those the user did not set end in ``# default``.

    Loading the text gives an equal spec, where ``server.environment`` gives no values: they are
    hidden.
    """
    return "\n".join(_lines(spec, 0, default=False)) + "\n"


def _lines(model: BaseModel, depth: int, *, default: bool) -> Iterator[str]:
    plain = model.model_dump(mode="json", by_alias=True)
    for name, info in type(model).model_fields.items():
        key = info.alias or name
        is_default = default or name not in model.model_fields_set
        value = getattr(model, name)
        yield from _entry(key, value, plain[key], depth, default=is_default)


def _entry(key: str, value: Any, plain: Any, depth: int, *, default: bool) -> Iterator[str]:
    start = f"{'  ' * depth}{dump_scalar(key)}:"
    mark = _MARK if default else ""
    if isinstance(value, BaseModel):
        yield start + mark
        yield from _lines(value, depth + 1, default=default)
    elif isinstance(value, dict) and value:
        yield start + mark
        for name, item in value.items():
            yield from _entry(name, item, plain[name], depth + 1, default=default)
    else:
        yield f"{start} {_switches(key, dump_scalar(plain))}{mark}"


def _switches(key: str, text: str) -> str:
    """Choices between off and on read better in the words of the spec."""
    if key != "choice":
        return text
    words = {"true": "on", "false": "off"}
    items = text.removeprefix("[").removesuffix("]").split(", ")
    return f"[{', '.join(words.get(item, item) for item in items)}]"
