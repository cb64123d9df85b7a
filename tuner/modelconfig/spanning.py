"""Engines that span several GPUs: each instance takes all GPUs of its list together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner.modelconfig.backends import Mistake, backend_of, is_on
from tuner.modelconfig.known_backends import BACKENDS
from tuner.modelconfig.schema import ModelConfig, enum_name
from tuner.regular import read_limited
from tuner.spec.mistakes import listed

#: Parameters that name the directory of TensorRT-LLM's engine.
_ENGINES = ("engine_dir", "gpt_model_path")
_MOST_BYTES = 1 << 20
_GPUS = re.compile(r"\s*\d+\s*(,\s*\d+\s*)*")


@dataclass(frozen=True)
class Spanning:
    """The GPUs of a model's instances.

    Attributes:
        path: Where the config lists them.
        lists: The GPUs of each instance; a single list: of every instance.
    """

    path: str
    lists: tuple[tuple[int, ...], ...]

    @property
    def gpus(self) -> set[int]:
        return {gpu for gpus in self.lists for gpu in gpus}

    @property
    def text(self) -> str:
        """`0 and 1; 2 and 3`."""
        return "; ".join(listed(map(str, gpus)) for gpus in self.lists)

    @property
    def several(self) -> bool:
        """Whether the lists fix the number of instances, or an instance takes several GPUs."""
        return len(self.lists) > 1 or len(self.lists[0]) > 1


def spanning(config: ModelConfig, backend: str) -> Spanning | None:
    """What a config says of its GPUs; None: nothing, or nothing that can be read."""
    row = BACKENDS.get(backend)
    key, switch = ("", "") if row is None else row.spans
    if key not in config.parameters or (switch and not is_on(config, switch)):
        return None
    parts = config.parameters[key].string_value.split(";")
    if not all(map(_GPUS.fullmatch, parts)):
        return None
    lists = (tuple(int(number) for number in part.split(",")) for part in parts)
    return Spanning(f"parameters[{key}]", tuple(lists))


def world_size(config: ModelConfig) -> int:
    """GPUs that TensorRT-LLM's engine was built for, by the config.json beside it; 0: not known."""
    places = [config.parameters[k].string_value for k in _ENGINES if k in config.parameters]
    for place in filter(None, places):
        try:
            built = json.loads(read_limited(Path(place) / "config.json", _MOST_BYTES))
            size = built["pretrained_config"]["mapping"]["world_size"]
        except (OSError, ValueError, TypeError, KeyError):
            continue
        if isinstance(size, int):
            return size
    return 0


def spanning_mistakes(config: ModelConfig) -> Iterator[Mistake]:
    """Numbers and kinds of instances that do not fit the lists of GPUs.

    TensorRT's engine on several GPUs is one instance of KIND_MODEL (docs/multi_device.md of
    tensorrt_backend).
    """
    spans = spanning(config, backend_of(config))
    if spans is None or not spans.several:
        return
    groups = config.instance_group
    count = sum(max(group.count, 1) for group in groups) or 1
    kinds = {enum_name(group, "kind") for group in groups} or {"KIND_AUTO"}
    if backend_of(config) == "tensorrt" and (count > 1 or kinds != {"KIND_MODEL"}):
        text = "an engine on several GPUs is a single instance of KIND_MODEL"
        yield "instance_group", text, "write instance_group { kind: KIND_MODEL count: 1 }"
    elif len(spans.lists) > 1 and count != len(spans.lists):
        text = f"instances: {count}, and {spans.path} lists GPUs for {len(spans.lists)}"
        yield "instance_group", text, "write a list for each instance, divided by semicolons"
