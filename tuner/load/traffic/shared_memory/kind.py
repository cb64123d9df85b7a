"""Requests whose inputs lie in memory that clients share with a server on their machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from tuner.load.setup import Stream
from tuner.load.traffic.kind import Traffic
from tuner.load.traffic.shared_memory.laying import laying
from tuner.load.traffic.wire import Lay
from tuner.modelconfig.schema import ModelConfig
from tuner.server.server import Endpoints
from tuner.spec.workload import SharedMemory, StreamSpec, Workload


class SharedInputs(Traffic):
    """See `Traffic`."""

    unlike_perf_analyzer = (
        "perf_analyzer leaves its shared memory behind where it is killed, and would show the key "
        "to the server's control in the list of processes"
    )

    @classmethod
    def in_spec(cls, workload: Workload, _: StreamSpec, __: Mapping[str, ModelConfig]) -> bool:
        return workload.shared_memory is SharedMemory.SYSTEM

    @classmethod
    def of(cls, _: Workload, streams: Sequence[Stream]) -> SharedInputs | None:
        return cls() if any(s.target.endpoints.shared is not None for s in streams) else None

    def laid(self, endpoints: Endpoints) -> AbstractContextManager[Lay | None]:
        return laying(endpoints)
