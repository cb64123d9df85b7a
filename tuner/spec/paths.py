"""Paths of the model's config that the program itself names; it searches every other as well."""

from __future__ import annotations

import re

MAX_BATCH_SIZE = "max_batch_size"
DYNAMIC_BATCHING = "dynamic_batching"
PREFERRED = f"{DYNAMIC_BATCHING}.preferred_batch_size"
DELAY = f"{DYNAMIC_BATCHING}.max_queue_delay_microseconds"
PRIORITY_LEVELS = f"{DYNAMIC_BATCHING}.priority_levels"
INSTANCE_GROUP = "instance_group"
INSTANCES = f"{INSTANCE_GROUP}.count"
CACHE_ENABLE = "response_cache.enable"
#: The server's, no field of ModelConfig: bytes, or None for no cache.
CACHE_SIZE = "response_cache.size"

#: Used instead of a model's label for what belongs to the server that all models share.
SERVER = "(server)"

#: The config in a model's directory, and all that may be one: a server that was started with
#: ``--model-config-name=NAME`` reads configs/NAME.pbtxt in its place, where there is one.
CONFIG_NAME = "config.pbtxt"
CONFIG_NAMES = re.compile(r"config\.pbtxt|configs/(?!config\.pbtxt)[\w-][\w.-]*\.pbtxt", re.ASCII)


def is_inside(path: str, message: str) -> bool:
    return path.startswith(f"{message}.")


def is_instance_count(path: str) -> bool:
    """Whether it is a number of instances, of all groups or of one."""
    return re.fullmatch(r"instance_group(\[[^\]]*\])?\.count", path) is not None
