"""The files that a spec names, by the fields that name them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tuner.spec.mistakes import Location, dotted
from tuner.spec.model import Spec

#: Not read by the load generator.
_LEFT_OUT: frozenset[Location] = frozenset(
    {("repository",), ("server", "binary"), ("workload", "perf_analyzer")}
)


def files_of(spec: Spec) -> dict[str, Path]:
    """The files that say what the load is, by the fields that name them."""
    files = _files(spec.model_dump(by_alias=True))
    return {dotted(location): path for location, path in files if location not in _LEFT_OUT}


def _files(part: object, at: Location = ()) -> Iterator[tuple[Location, Path]]:
    if isinstance(part, Path):
        yield at, part
    elif isinstance(part, dict):
        for key, value in part.items():
            yield from _files(value, (*at, key))
