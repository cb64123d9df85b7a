"""Which fields of a config say how requests are scheduled; any other may change a batch's cost."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tuner.space.candidate import Candidate
from tuner.space.parameters import Knob
from tuner.spec.paths import (
    CACHE_ENABLE,
    DELAY,
    DYNAMIC_BATCHING,
    MAX_BATCH_SIZE,
    PREFERRED,
    is_inside,
    is_instance_count,
)

#: Fields of ModelConfig that say how requests are scheduled. A field that starts with one of
#: these names belongs to it; any other field may change what a batch costs.
_SCHEDULING = (
    MAX_BATCH_SIZE,
    PREFERRED,
    DELAY,
    "dynamic_batching.default_queue_policy",
    "dynamic_batching.priority_queue_policy",
    "dynamic_batching.priority_levels",
    "dynamic_batching.default_priority_level",
    CACHE_ENABLE,
)
#: Whole messages: on or off.
_BLOCKS = (DYNAMIC_BATCHING, "response_cache")


@lru_cache(maxsize=1024)
def is_scheduling(path: str) -> bool:
    """Whether a field says how requests are scheduled, and not what a batch costs."""
    if path in _BLOCKS or is_instance_count(path):
        return True
    return any(path == known or is_inside(path, known) for known in _SCHEDULING)


def service_key(candidate: Candidate) -> tuple[tuple[Knob, Any], ...]:
    """What must be equal for two candidates to have the same service times."""
    return tuple((k, v) for k, v in candidate.fields.items() if not is_scheduling(k.path))
