"""Candidates in a few words, for lines of progress and reports."""

from __future__ import annotations

from tuner.space.candidate import Candidate, FieldValue
from tuner.spec.digits import digits

#: Shorter names of the fields people know by heart.
_SHORT = {
    "instance_group.count": "instances",
    "max_batch_size": "max batch",
    "dynamic_batching": "dynamic batching",
    "dynamic_batching.preferred_batch_size": "preferred",
    "dynamic_batching.max_queue_delay_microseconds": "delay",
    "response_cache.enable": "cache",
}

_CACHE_FLAG = "--cache-config=local,size="


def field_text(path: str, value: FieldValue) -> str:
    """`instances 2`, `delay 3 ms`, `preferred [4, 8]`, `dynamic batching off`."""
    name = _SHORT.get(path, path)
    if value is None:
        return f"{name} off" if name in ("dynamic batching", "cache") else f"no {name}"
    if value is True or value is False:
        return f"{name} {'on' if value else 'off'}"
    if value == 0 and path.endswith(".count"):
        return f"{name} left to Triton"
    if path.endswith("_microseconds") and isinstance(value, int):
        return f"{name} {value / 1000:g} ms" if value >= 1000 else f"{name} {value} us"
    if isinstance(value, tuple):
        return f"{name} [{', '.join(str(v) for v in value)}]"
    return f"{name} {value}"


def server_arg_text(argument: str) -> str:
    if argument.startswith(_CACHE_FLAG) and argument[len(_CACHE_FLAG) :].isdigit():
        return f"cache {bytes_text(int(argument[len(_CACHE_FLAG) :]))}"
    return argument


def bytes_text(size: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{digits(size / factor, 4)} {unit}"
    return f"{size} B"


def changes_text(candidate: Candidate, current: Candidate) -> str:
    """What differs from the current config, in a few words; `current config` when nothing does."""
    fields = [
        field_text(path, value)
        for path, value in candidate.fields.items()
        if current.fields.get(path) != value and path != "response_cache.enable"
    ]
    arguments = [server_arg_text(a) for a in candidate.server_args if a not in current.server_args]
    gone = [a for a in current.server_args if a not in candidate.server_args]
    if gone and not arguments:
        arguments = [f"without {server_arg_text(a)}" for a in gone]
    return ", ".join([*fields, *arguments]) or "current config"
