"""Paths of the model's config that the program itself names; it searches every other as well.

Some of them say how requests are scheduled; any other may change what a batch costs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

MAX_BATCH_SIZE = "max_batch_size"
DYNAMIC_BATCHING = "dynamic_batching"
PREFERRED = f"{DYNAMIC_BATCHING}.preferred_batch_size"
DELAY = f"{DYNAMIC_BATCHING}.max_queue_delay_microseconds"
QUEUE_POLICY = f"{DYNAMIC_BATCHING}.default_queue_policy"
QUEUE_TIMEOUT = f"{QUEUE_POLICY}.default_timeout_microseconds"
PRIORITY_LEVELS = f"{DYNAMIC_BATCHING}.priority_levels"
SEQUENCE_BATCHING = "sequence_batching"
SEQUENCE_IDLE = f"{SEQUENCE_BATCHING}.max_sequence_idle_microseconds"
DIRECT = f"{SEQUENCE_BATCHING}.direct"
SLOT_UTILIZATION = f"{DIRECT}.minimum_slot_utilization"
DIRECT_DELAY = f"{DIRECT}.max_queue_delay_microseconds"
OLDEST = f"{SEQUENCE_BATCHING}.oldest"
OLDEST_PREFERRED = f"{OLDEST}.preferred_batch_size"
OLDEST_DELAY = f"{OLDEST}.max_queue_delay_microseconds"
CANDIDATE_SEQUENCES = f"{OLDEST}.max_candidate_sequences"
INSTANCE_GROUP = "instance_group"
INSTANCES = f"{INSTANCE_GROUP}.count"
CACHE_ENABLE = "response_cache.enable"
#: The server's, no field of ModelConfig: bytes, or None for no cache.
CACHE_SIZE = "response_cache.size"
#: The server's too: a number of threads, or None where the variable is not set.
_ENVIRONMENT = "environment."

#: Used instead of a model's label for what belongs to the server that all models share.
SERVER = "(server)"

#: Where models are looked for by default.
REPOSITORY = Path("model_repository")
#: The config in a model's directory, and all that may be one: a server that was started with
#: ``--model-config-name=NAME`` reads configs/NAME.pbtxt in its place, where there is one.
CONFIG_NAME = "config.pbtxt"
CONFIG_NAMES = re.compile(r"config\.pbtxt|configs/(?!config\.pbtxt)[\w-][\w.-]*\.pbtxt", re.ASCII)

SEVERAL_REPOSITORIES = (
    "Triton takes several repositories; for tune make one directory of links (ln -s /A/* /B/* DIR)"
)


def variable_of(path: str) -> str:
    """The variable of the server's environment in ``environment.NAME``; empty for other paths."""
    return path.removeprefix(_ENVIRONMENT) if path.startswith(_ENVIRONMENT) else ""


def variable_path(name: str) -> str:
    """The path of a variable of the server's environment."""
    return f"{_ENVIRONMENT}{name}"


def is_of_server(path: object) -> bool:
    """Whether a setting is one that all models share."""
    return path == CACHE_SIZE or (isinstance(path, str) and path.startswith(_ENVIRONMENT))


def is_inside(path: str, message: str) -> bool:
    return path.startswith(f"{message}.")


def is_instance_count(path: str) -> bool:
    """Whether it is a number of instances, of all groups or of one."""
    return re.fullmatch(r"instance_group(\[[^\]]*\])?\.count", path) is not None


#: What a batcher does with the requests that wait, with all that is inside: for batches of one too.
_OF_THE_QUEUE = (
    QUEUE_POLICY,
    f"{DYNAMIC_BATCHING}.priority_queue_policy",
    PRIORITY_LEVELS,
    f"{DYNAMIC_BATCHING}.default_priority_level",
)
#: Fields that say how requests are scheduled, with all that is inside them.
_SCHEDULING = (
    MAX_BATCH_SIZE,
    PREFERRED,
    DELAY,
    *_OF_THE_QUEUE,
    CACHE_ENABLE,
    SEQUENCE_BATCHING,
)
#: Whole messages: on or off.
_BLOCKS = (DYNAMIC_BATCHING, "response_cache")


def is_of_queue(path: str) -> bool:
    """Whether a field limits, times out or orders the requests that wait."""
    return path.startswith(_OF_THE_QUEUE)


@lru_cache(maxsize=1024)
def is_scheduling(path: str) -> bool:
    """Whether a field says how requests are scheduled, and not what a batch costs."""
    if path in _BLOCKS or is_instance_count(path):
        return True
    return any(path == known or is_inside(path, known) for known in _SCHEDULING)
