"""Which load generator measures a run. Decided once: two generators are two definitions of latency.

perf_analyzer measures wherever it can: it is NVIDIA's own, well kept, and what others measure with.
It cannot where requests may be refused, for it gives no result when one fails. And it should not
where tensors are large: its export of every request's times, without which a late client hides a
stalled server, holds every tensor as text too, and no option leaves them out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tuner.load.measurement import LoadPoint

#: Of one request in the export: 5,000/s for four seconds are 80 MB then.
MAX_EXPORT_BYTES = 4096
_NUMBER_BYTES = 20  # with its comma
_STRING_BYTES = 100
_VARIABLE = 128  # a dimension nobody gave
_ASSUMED_LATENCY_S = 0.005  # closed loops: to guess how many requests there will be


class Client(Enum):
    """Who sends requests and takes the times."""

    PERF_ANALYZER = "perf_analyzer"
    OWN = "tune"

    def __str__(self) -> str:
        return "tune's own client" if self is Client.OWN else self.value


@dataclass(frozen=True)
class Choice:
    """Who measures, and why it is not perf_analyzer; empty where it is."""

    client: Client
    why: str = ""


def choose(
    config: Any, shapes: Mapping[str, Sequence[int]], batch_size: int, *, may_refuse: bool
) -> Choice:
    """Who is to measure a model.

    Args:
        config: Its ``ModelConfig``, completed.
        shapes: Of its inputs, for variable dimensions, without the batch.
        batch_size: Inferences in one request.
        may_refuse: Whether a config of the run can refuse requests.
    """
    if may_refuse:
        return Choice(Client.OWN, "perf_analyzer gives no result when a request is refused")
    exported = batch_size * export_bytes(config, shapes)
    if exported <= MAX_EXPORT_BYTES:
        return Choice(Client.PERF_ANALYZER)
    size = f"{exported / 1e6:.1f} MB" if exported >= 100_000 else f"{exported / 1e3:.0f} kB"
    why = f"perf_analyzer writes about {size} for each request to tell its latency"
    return Choice(Client.OWN, why)


def may_reject(config: Any) -> bool:
    """Whether a queue policy of a ``ModelConfig`` can refuse requests."""
    batching = config.dynamic_batching
    policies = (batching.default_queue_policy, *batching.priority_queue_policy.values())
    return any(
        policy.max_queue_size > 0
        or (policy.default_timeout_microseconds > 0 and policy.timeout_action == policy.REJECT)
        for policy in policies
    )


def export_bytes(config: Any, shapes: Mapping[str, Sequence[int]]) -> int:
    """About how much one inference takes in perf_analyzer's profile export."""
    # An output's variable dimension is mostly an input's: tokens in, tokens out.
    variable = max((d for shape in shapes.values() for d in shape), default=_VARIABLE)

    def size(tensor: Any) -> int:
        own = shapes.get(tensor.name) or tensor.dims
        elements = math.prod(variable if d < 0 else d for d in own)
        kinds = tensor.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
        text = kinds[tensor.data_type].name == "TYPE_STRING"
        return elements * (_STRING_BYTES if text else _NUMBER_BYTES)

    return sum(map(size, (*config.input, *config.output)))


def expected_requests(load: LoadPoint, seconds: float) -> int:
    """About how many requests a load takes in a time."""
    rate = load.level if load.arrivals.open_loop else load.level / _ASSUMED_LATENCY_S
    return math.ceil(rate * seconds)
