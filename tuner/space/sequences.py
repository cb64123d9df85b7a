"""Models that take sequences of requests, and the load that fits them."""

from __future__ import annotations

from tuner.modelconfig.schema import ModelConfig
from tuner.spec.model import Spec
from tuner.spec.paths import SEQUENCE_BATCHING
from tuner.spec.units import digits
from tuner.spec.workload import SequenceArrivals

#: What a draft writes, and what a mistake says.
EXAMPLE = "{kind: sequences, length: 20, interval: 100ms}"


def takes_sequences(config: ModelConfig) -> bool:
    return bool(config.HasField(SEQUENCE_BATCHING))


def sequence_note(spec: Spec) -> str:
    """How many sequences a load is, and whether their order is checked; empty without any."""
    arrivals = spec.workload.arrivals
    if not isinstance(arrivals, SequenceArrivals):
        return ""
    one = digits(1.0 / float(arrivals.interval))
    checked = f"their order is checked in {arrivals.count_output}"
    if arrivals.count_output is None:
        checked = "their order is kept, not checked: no count_output is named"
    return f"each sequence at once is {one}/s; {checked}"
