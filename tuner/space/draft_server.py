"""The `server` section of a draft, with the server settings to search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuner.space.draft_text import DraftEntry, Remark, flow, off
from tuner.spec.paths import CACHE_SIZE, variable_path
from tuner.spec.server import MODES, ServerMode

_SIZES = "{choice: [off, 64MiB, 256MiB]}"
_REPEATS: tuple[DraftEntry | Remark, ...] = (
    Remark("Only where requests repeat byte for byte. Then say how often, under workload.inputs:"),
    off("repeat", "{kind: zipf, exponent: 0.9}"),
)
#: Only where requests repeat.
CACHE = (*_REPEATS, DraftEntry(CACHE_SIZE, _SIZES, mark="# "))
#: Numbers of threads worth trying, where there are more cores: with as many, unset is the same.
_THREADS = (1, 2, 4)


def variable_lines(names: Iterable[str], server: Mapping[str, Any], cores: int) -> list[DraftEntry]:
    """Searches variables of the server's environment, where tune starts the server."""
    if not MODES[ServerMode(server["mode"])].managed:
        return []
    counts = [str(count) for count in _THREADS if count < max(cores, 2)]
    values = f"{{choice: [{', '.join(['unset', *counts])}]}}"
    why = "threads of each instance; no config.pbtxt can set them"
    paths = [variable_path(name) for name in names]
    return [DraftEntry(path, values, "" if k else why) for k, path in enumerate(paths)]


def server_section(
    server: Mapping[str, Any], why: str, searched: Sequence[DraftEntry]
) -> DraftEntry:
    """The section, with the ``searched`` settings, which all models share."""
    if not searched:
        return DraftEntry("server", flow(server), why)
    (first, value), *others = server.items()
    below = [
        DraftEntry(first, flow(value), why),
        *(DraftEntry(key, flow(text)) for key, text in others),
    ]
    return DraftEntry("server", below=(*below, DraftEntry("space", below=tuple(searched))))


def cache_of_server(searched: Sequence[DraftEntry]) -> list[DraftEntry | Remark]:
    """How the cache is searched in a spec of several models."""
    if searched:
        return [*_REPEATS, Remark("and under server.space:"), off(CACHE_SIZE, _SIZES)]
    space = f"{{{CACHE_SIZE}: {_SIZES}}}"
    return [*_REPEATS, Remark("and beside mode, under server:"), off("space", space)]
