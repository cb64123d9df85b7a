"""Requests with tensors in memory that clients share with a server on their machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tuner.load.setup import Stream
from tuner.load.traffic.kind import Traffic
from tuner.load.traffic.shared_memory.laying import laying
from tuner.load.traffic.wire import Lay, RequestForm
from tuner.modelconfig.schema import ModelConfig
from tuner.server.server import Endpoints
from tuner.spec.workload import SharedMemory, StreamSpec, Workload


@dataclass(frozen=True)
class SharedTensors(Traffic):
    """Inputs in shared memory; see `Traffic`.

    Attributes:
        with_outputs: Forms of the requests whose outputs are there too.
    """

    with_outputs: tuple[RequestForm, ...] = ()
    unlike_perf_analyzer = (
        "perf_analyzer leaves its shared memory behind if it is killed, and would show the key to "
        "the server's control interface in the list of processes"
    )

    @classmethod
    def in_spec(cls, workload: Workload, _: StreamSpec, __: Mapping[str, ModelConfig]) -> bool:
        return workload.shared_memory is SharedMemory.SYSTEM

    @classmethod
    def of(cls, workload: Workload, streams: Sequence[Stream]) -> SharedTensors | None:
        if all(stream.target.endpoints.shared is None for stream in streams):
            return None
        return cls(tuple(stream.form for stream in streams) if workload.shared_outputs else ())

    def laid(self, endpoints: Endpoints) -> AbstractContextManager[Lay | None]:
        return laying(endpoints, self.with_outputs)
