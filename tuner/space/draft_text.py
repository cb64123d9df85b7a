"""The parts of a drafted line: values and comments, each on one line, whatever is in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.plain import plain
from tuner.spec.yaml_tree import dump_item


def remark(text: str) -> str:
    """A comment: a line break in the name of a model or of its backend begins no line here."""
    return f"# {plain(text)}"


def flow(value: Any) -> str:
    """A value as the spec's reader reads it back."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(k)}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, bool):
        return "on" if value else "off"
    return dump_item(value)
