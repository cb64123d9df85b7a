"""Labels of models and streams in texts; a single one needs no label."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

_T = TypeVar("_T")


def labelled(label: str, text: str, among: Collection[str]) -> str:
    """``tiny-bert: instances 2``; only the text where there are no others."""
    return f"{label}: {text}" if len(among) > 1 else text


def several(named: Mapping[str, _T]) -> Mapping[str, _T]:
    """The same; nothing where there is only one, which needs no name."""
    return named if len(named) > 1 else {}


def of_stream(stream: str, text: str) -> str:
    """``interactive: p99 latency``; only the text for ``""``, all requests together."""
    return f"{stream}: {text}" if stream else text


def of_label(label: str, among: Collection[str]) -> str:
    """`` of tiny-bert``; empty where there are no other labels."""
    return f" of {label}" if len(among) > 1 else ""
