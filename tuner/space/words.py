"""Candidates in a few words, for progress and reports."""

from __future__ import annotations

from tuner.space.candidate import Candidate, FieldValue
from tuner.space.parameters import Knob
from tuner.spec.labels import labelled
from tuner.spec.paths import (
    CACHE_ENABLE,
    CANDIDATE_SEQUENCES,
    DELAY,
    DYNAMIC_BATCHING,
    INSTANCES,
    MAX_BATCH_SIZE,
    OLDEST,
    OLDEST_DELAY,
    OLDEST_PREFERRED,
    PREFERRED,
    is_instance_count,
)
from tuner.spec.units import bytes_text

#: Short names of common fields.
SHORT_NAMES = {
    INSTANCES: "instances",
    MAX_BATCH_SIZE: "max batch",
    DYNAMIC_BATCHING: "dynamic batching",
    PREFERRED: "preferred",
    DELAY: "delay",
    CACHE_ENABLE: "cache",
    OLDEST: "oldest",
    OLDEST_PREFERRED: "preferred",
    OLDEST_DELAY: "delay",
    CANDIDATE_SEQUENCES: "candidate sequences",
}


def field_text(candidate: Candidate, knob: Knob) -> str:
    """`instances 2`, `delay 3 ms`, `preferred [4, 8]`, `tiny-bert: dynamic batching off`."""
    text = _path_text(knob.path, candidate.values[knob])
    return labelled(knob.owner, text, candidate.models)


def _path_text(path: str, value: FieldValue) -> str:
    name = SHORT_NAMES.get(path, path)
    if value is None:
        return f"{name} off" if name in ("dynamic batching", "cache", "oldest") else f"no {name}"
    if value is True or value is False:
        return f"{name} {'on' if value else 'off'}"
    if value == 0 and is_instance_count(path):
        return f"{name} left to Triton"
    if path.endswith("_microseconds") and isinstance(value, int):
        return f"{name} {value / 1000:g} ms" if value >= 1000 else f"{name} {value} us"
    if isinstance(value, tuple):
        return f"{name} [{', '.join(str(v) for v in value)}]"
    return f"{name} {value}"


def variables_text(candidate: Candidate) -> list[str]:
    """`OMP_NUM_THREADS 1`, `no OMP_NUM_THREADS`: a phrase for each variable that is searched."""
    variables = candidate.start.environment.items()
    return [f"no {name}" if count is None else f"{name} {count}" for name, count in variables]


def cache_text(candidate: Candidate) -> str:
    """`cache 64 MiB`; nothing without one."""
    size = candidate.cache_bytes
    return "" if size is None else f"cache {bytes_text(size)}"


def changes_text(candidate: Candidate, current: Candidate) -> str:
    """What differs from the current config, in a few words; `current config` when nothing does."""
    models = []
    for owner, fields in candidate.models.items():
        now = current.of(owner)
        changed = (p for p, v in fields.items() if now.get(p) != v and p != CACHE_ENABLE)
        texts = [_path_text(path, fields[path]) for path in changed]
        if texts:
            models.append(labelled(owner, ", ".join(texts), candidate.models))
    before = variables_text(current)
    changes = ["; ".join(models), *(t for t in variables_text(candidate) if t not in before)]
    if candidate.cache_bytes != current.cache_bytes:
        changes.append(cache_text(candidate) or f"without {cache_text(current)}")
    return ", ".join(filter(None, changes)) or "current config"
