"""What perf_analyzer cannot measure, or should not.

It cannot send several streams on one clock, or requests with a priority, and it gives no result
when a request is refused. It should not be used where tensors are large: its export of every
request's times, without which a late client hides a stalled server, also holds every tensor as
text, and no option leaves them out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.load.generator import Demand
from tuner.modelconfig.schema import enum_name

#: Of one request in the export: 5,000/s for four seconds are 80 MB then.
MAX_EXPORT_BYTES = 4096
_NUMBER_BYTES = 20  # with its comma
_STRING_BYTES = 100
_VARIABLE = 128  # a dimension nobody gave


def why_not(demands: Sequence[Demand]) -> str:
    """Why it cannot measure a run with these streams; empty where it can."""
    if len(demands) > 1:
        return "perf_analyzer sends one stream of requests, to one model"
    (demand,) = demands
    if demand.priority:
        return "perf_analyzer has no option for the priority of requests"
    if demand.may_refuse:
        return "perf_analyzer gives no result when a request is refused"
    exported = demand.batch_size * export_bytes(demand.config, demand.shapes)
    if exported <= MAX_EXPORT_BYTES:
        return ""
    size = f"{exported / 1e6:.1f} MB" if exported >= 100_000 else f"{exported / 1e3:.0f} kB"
    return f"requests are too large for perf_analyzer's record of latencies (about {size} each)"


def export_bytes(config: Any, shapes: Mapping[str, Sequence[int]]) -> int:
    """About how much one inference takes in perf_analyzer's profile export."""
    # An output's variable dimension is mostly an input's: tokens in, tokens out.
    variable = max((d for shape in shapes.values() for d in shape), default=_VARIABLE)

    def size(tensor: Any) -> int:
        own = shapes.get(tensor.name) or tensor.dims
        elements = math.prod(variable if d < 0 else d for d in own)
        text = enum_name(tensor, "data_type") == "TYPE_STRING"
        return elements * (_STRING_BYTES if text else _NUMBER_BYTES)

    return sum(map(size, (*config.input, *config.output)))
