"""Whether a value is what its type says: dataclasses do not look, and files may hold anything."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints


def misfit(value: Any, hint: Any, name: str = "") -> str:
    """Where ``value`` is not a ``hint``, in words; empty where it fits.

    Knows what the dataclasses of a run are made of: plain values, enums, mappings, sequences,
    unions, and other dataclasses. Anything else fits.
    """
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _of_union(value, get_args(hint), name)
    if origin is tuple:
        return _of_tuple(value, get_args(hint), name)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _of_mapping(value, get_args(hint), name)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return _of_sequence(value, get_args(hint)[0], name)
    if not isinstance(hint, type):
        return ""
    if hint is float:
        return _unless(isinstance(value, int | float) and not isinstance(value, bool), name, value)
    if hint is int:
        return _unless(isinstance(value, int) and not isinstance(value, bool), name, value)
    if hint in (str, bool, type(None)) or issubclass(hint, Enum):
        return _unless(isinstance(value, hint), name, value)
    if dataclasses.is_dataclass(hint):
        return _of_dataclass(value, hint, name)
    return ""


@cache
def _hints(kind: type) -> dict[str, Any]:
    return {f.name: _hint(kind, f) for f in dataclasses.fields(kind)}


def _hint(kind: type, attribute: dataclasses.Field[Any]) -> Any:
    """Its type; Any for one whose names are there for type checkers only."""
    alone = types.SimpleNamespace(__annotations__={attribute.name: attribute.type})
    try:
        return get_type_hints(alone, vars(sys.modules[kind.__module__]))[attribute.name]
    except NameError:
        return Any


def _of_dataclass(value: Any, hint: type, name: str) -> str:
    if not isinstance(value, hint):
        return _unless(False, name, value)
    dot = f"{name}." if name else ""
    found = (misfit(getattr(value, n), h, f"{dot}{n}") for n, h in _hints(hint).items())
    return next(filter(None, found), "")


def _of_union(value: Any, hints: Sequence[Any], name: str) -> str:
    wrong = [misfit(value, hint, name) for hint in hints]
    return "" if "" in wrong else max(wrong, key=len)  # the longest saw most of it


def _of_tuple(value: Any, hints: Sequence[Any], name: str) -> str:
    if not isinstance(value, tuple):
        return _unless(False, name, value)
    if hints[-1] is not Ellipsis:
        if len(value) != len(hints):
            return f"{name} has {len(value)} parts, not {len(hints)}"
        return _first(zip(value, hints, strict=True), name)
    return _first(((item, hints[0]) for item in value), name)


def _of_sequence(value: Any, hint: Any, name: str) -> str:
    if not isinstance(value, list | tuple):
        return _unless(False, name, value)
    return _first(((item, hint) for item in value), name)


def _first(pairs: Any, name: str) -> str:
    found = (misfit(item, hint, f"{name}[{i}]") for i, (item, hint) in enumerate(pairs))
    return next(filter(None, found), "")


def _of_mapping(value: Any, hints: Sequence[Any], name: str) -> str:
    if not isinstance(value, Mapping):
        return _unless(False, name, value)
    found = (misfit(v, hints[1], f"{name}.{k}") for k, v in value.items())
    return next(filter(None, found), "")


def _unless(fits: bool, name: str, value: Any) -> str:
    if fits:
        return ""
    shown = repr(value)
    return f"{name or 'the value'} cannot be {shown if len(shown) < 60 else shown[:57] + '...'}"
