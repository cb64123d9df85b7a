"""Small spaces for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner.modelconfig.base import Base
from tuner.modelconfig.files import ModelFiles
from tuner.modelconfig.message import parse
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.served import Served
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


def spec_of(space: dict[str, Any], **more: Any) -> Spec:
    bare = {"model": "m", "repository": "models", "slo": ["p99_latency <= 40ms"], "space": space}
    return Spec.model_validate({**bare, **more})


def space_of(space: dict[str, Any], config: str = BATCHING, **more: Any) -> Space:
    return build_space(spec_of(space, **more), served_of(config))


def served_of(config: str | ModelConfig | Base) -> Served:
    """One model, whose label is empty."""
    text = config if isinstance(config, str) else ""
    base = config if isinstance(config, Base) else Base.of_file(parse(text) if text else config)
    path = Path("m/config.pbtxt")
    return Served.of(base, ModelFiles("m", path.parent, path, text, True, "", (1,), "utf-8"))
