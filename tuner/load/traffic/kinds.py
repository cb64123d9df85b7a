"""Every kind of traffic other than independent requests, by name, in the order of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.load.setup import Stream
from tuner.load.traffic.decoupled.kind import Decoupled
from tuner.load.traffic.kind import Traffic
from tuner.load.traffic.mixed_shapes.kind import MixedShapes
from tuner.load.traffic.recordings.kind import Recordings
from tuner.load.traffic.sequences.kind import Sequences
from tuner.load.traffic.shared_memory.kind import SharedTensors
from tuner.modelconfig.schema import ModelConfig
from tuner.spec.workload import StreamSpec, Workload

TRAFFIC: dict[str, type[Traffic]] = {
    "shared_memory": SharedTensors,
    "mixed_shapes": MixedShapes,
    "recordings": Recordings,
    "decoupled": Decoupled,
    "sequences": Sequences,
}


def traffic_of(workload: Workload, streams: Sequence[Stream]) -> tuple[Traffic, ...]:
    """The kinds of traffic in a load with these streams.

    Raises:
        SpecError: See `Traffic.of`.
    """
    kinds = [kind.of(workload, streams) for kind in TRAFFIC.values()]
    return tuple(one for one in kinds if one is not None)


def unlike_perf_analyzer(
    workload: Workload, stream: StreamSpec, configs: Mapping[str, ModelConfig]
) -> tuple[str, ...]:
    """Why perf_analyzer cannot measure a stream, one reason per kind of traffic."""
    kinds = [kind for kind in TRAFFIC.values() if kind.in_spec(workload, stream, configs)]
    return tuple(kind.unlike_perf_analyzer for kind in kinds if kind.unlike_perf_analyzer)
