"""Small spaces for tests."""

from __future__ import annotations

from typing import Any

from builders.ensemble_cases import ENSEMBLE
from builders.serving import served_named, served_one

from tuner.space.build import build_space
from tuner.space.space import Space
from tuner.spec.model import Spec

BATCHING = (
    'name: "m" backend: "python" max_batch_size: 16 instance_group [{count: 1 kind: KIND_CPU}]'
)

INSTANCES = "instance_group.count"
BATCH = "max_batch_size"
BATCHER = "dynamic_batching"
DELAY = "dynamic_batching.max_queue_delay_microseconds"
PREFERRED = "dynamic_batching.preferred_batch_size"
CACHE = "response_cache.size"

USUAL: dict[str, Any] = {
    INSTANCES: {"int": [1, 4]},
    BATCH: {"choice": [8, 16, 32]},
    PREFERRED: {"subsets": [4, 8, 16], "at_most": 2, "or": "unset"},
    DELAY: {"int": [50, 10_000], "log": True, "or": 0},
}


#: Two models, and an ensemble of them that takes batches of four.
PARTS = {
    name: f'name: "{name}" backend: "python" max_batch_size: 8 '
    'input { name: "x" data_type: TYPE_FP32 dims: 4 } '
    'output { name: "y" data_type: TYPE_FP32 dims: 4 } '
    "instance_group [{ count: 1 kind: KIND_CPU }]"
    for name in ("one", "two")
}
EXAMPLES = {**PARTS, "e": ENSEMBLE}


def spec_of(space: dict[str, Any], **more: Any) -> Spec:
    """Of the fields of one model, or of the models, the streams and the server of several."""
    models = space if "models" in space else {"model": "m", "space": space}
    bare = {"repository": "models", "slo": ["p99_latency <= 40ms"]}
    return Spec.model_validate({**bare, **models, **more})


def space_of(space: dict[str, Any], config: str = BATCHING, **more: Any) -> Space:
    spec = spec_of(space, **more)
    named = {label: EXAMPLES[label] for label in EXAMPLES if label in spec.models}
    return build_space(spec, served_named(**named) if named else served_one(config))
