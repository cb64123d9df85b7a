"""What a draft says of the server: its section, and what of it is searched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tuner.space.draft_text import flow, remark
from tuner.spec.paths import variable_path
from tuner.spec.server import MODES, ServerMode

_CACHE = "response_cache.size: {choice: [off, 64MiB, 256MiB]}"
#: Only where requests repeat.
CACHE_LINES = (
    "# Only where requests repeat byte for byte. Then say how often, under workload.inputs:",
    "#   repeat: {kind: zipf, exponent: 0.9}",
    f"# {_CACHE}",
)
#: Numbers of threads worth trying, where there are more cores: with as many, unset is the same.
_THREADS = (1, 2, 4)


def variable_lines(names: Iterable[str], server: Mapping[str, Any], cores: int) -> list[str]:
    """Searches variables of the server's environment, where tune starts the server."""
    if not MODES[ServerMode(server["mode"])].managed:
        return []
    counts = ", ".join(str(count) for count in _THREADS if count < max(cores, 2))
    why = "     # threads of each instance; no config.pbtxt can set them"
    return [f"{variable_path(name)}: {{choice: [unset, {counts}]}}{why}" for name in names]


def server_lines(server: Mapping[str, Any], why: str, searched: list[str]) -> Iterator[str]:
    """The section; with what is ``searched`` of the server, which its models share."""
    if not searched:
        yield f"server: {flow(server)}     {remark(why)}"
        return
    (first, value), *others = server.items()
    yield "server:"
    yield f"  {first}: {flow(value)}     {remark(why)}"
    yield from (f"  {key}: {flow(value)}" for key, value in others)
    yield "  space:"
    yield from (f"    {line}" for line in searched)


def cache_of_server(searched: list[str]) -> list[str]:
    """How the cache is searched in a spec of several models."""
    *repeats, _ = CACHE_LINES
    if searched:
        return [*repeats, "# and under server.space:", f"#   {_CACHE}"]
    return [*repeats, "# and beside mode, under server:", f"#   space: {{{_CACHE}}}"]
