"""Paths of the model's config: which of them can be searched, and those that the code uses.

Some paths are scheduling only; any other may change the service time of a batch.
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
VERSION_POLICY = "version_policy"
#: A setting of the server, no field of ModelConfig: bytes, or None without a cache.
CACHE_SIZE = "response_cache.size"
#: Also settings of the server: a number of threads, or None where the variable is not set.
_ENVIRONMENT = "environment."

#: Fields that say how a model runs and which of its versions, with all fields inside; any other
#: field says what the model is.
SEARCHABLE = (
    MAX_BATCH_SIZE,
    DYNAMIC_BATCHING,
    SEQUENCE_BATCHING,
    INSTANCE_GROUP,
    "optimization",
    "parameters",
    "response_cache",
    VERSION_POLICY,
)
#: Fields inside those that name inputs and outputs of the model.
_OF_TENSORS = (f"{SEQUENCE_BATCHING}.control_input", f"{SEQUENCE_BATCHING}.state")

#: Stands for a model's label in settings of the server, which all models share.
SERVER = "(server)"

#: The default model repository.
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
    """Whether a path is a setting of the server, which all models share."""
    return path == CACHE_SIZE or (isinstance(path, str) and path.startswith(_ENVIRONMENT))


#: Common wrong paths for the fields that are searched most.
_ALIASES = {
    "count": INSTANCES,
    "instances": INSTANCES,
    "instance_count": INSTANCES,
    "instance_group": INSTANCES,
    "batch_size": MAX_BATCH_SIZE,
    "preferred_batch_size": PREFERRED,
    "max_queue_delay_microseconds": DELAY,
    "max_queue_delay": DELAY,
    "dynamic_batching.max_queue_delay": DELAY,
    "max_queue_delay_us": DELAY,
    "queue_delay_us": DELAY,
    "queue_delay": DELAY,
    "cache_size": CACHE_SIZE,
    "response_cache_size": CACHE_SIZE,
    "response_cache_byte_size": CACHE_SIZE,
    "response_cache.byte_size": CACHE_SIZE,
}


def unknown_field(path: str) -> str:
    """What is wrong with a name that users may write for a field; empty for other paths."""
    return f"unknown field '{path}' (did you mean {_ALIASES[path]}?)" if path in _ALIASES else ""


def is_searchable(path: str) -> bool:
    """Whether a field says how a model runs, and not what the model is."""
    top, *inner = re.split(r"[.\[]", path, maxsplit=2)
    return top in SEARCHABLE and ".".join((top, *inner[:1])) not in _OF_TENSORS


def is_inside(path: str, message: str) -> bool:
    return path.startswith(f"{message}.")


def is_instance_count(path: str) -> bool:
    """Whether a path is a number of instances, of all groups or of one."""
    return re.fullmatch(r"instance_group(\[[^\]]*\])?\.count", path) is not None


#: Fields for waiting requests, with all fields inside; they have an effect for batches of one, too.
_OF_THE_QUEUE = (
    QUEUE_POLICY,
    f"{DYNAMIC_BATCHING}.priority_queue_policy",
    PRIORITY_LEVELS,
    f"{DYNAMIC_BATCHING}.default_priority_level",
)
#: Fields that only schedule, with all fields inside.
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
    """Whether a field only schedules requests, and cannot change the service time of a batch."""
    if path in _BLOCKS or is_instance_count(path):
        return True
    return any(path == known or is_inside(path, known) for known in _SCHEDULING)
