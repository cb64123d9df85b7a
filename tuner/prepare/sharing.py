"""The space in `/dev/shm` for tensors of requests in shared memory."""

from __future__ import annotations

import shutil

from tuner.checks.requests import drawn_tensors
from tuner.errors import EnvironmentNotReadyError
from tuner.load.traffic.encoding import output_bytes, request_bytes
from tuner.load.traffic.inputs import most_entries
from tuner.load.traffic.shared_memory.laying import PLACES, place_bytes
from tuner.prepare.job import Job
from tuner.server.shared_memory import REGION_BYTES, SHM
from tuner.spec.units import bytes_text
from tuner.spec.workload import RandomInputs, SharedMemory


def shared_bytes(job: Job) -> int:
    """The most bytes of `/dev/shm` that tensors of one measurement need; 0 without shared memory.

    Tensors whose shapes only a server knows are not counted.
    """
    if job.spec.workload.shared_memory is not SharedMemory.SYSTEM:
        return 0
    inputs = sum(_stream_bytes(job, name) for name in job.spec.streams)
    return min(inputs + _outputs_bytes(job), REGION_BYTES)


def _outputs_bytes(job: Job) -> int:
    if not job.spec.workload.shared_outputs:
        return 0
    each = {
        (stream.model, stream.batch_size): place_bytes(
            output_bytes(job.served.models[stream.model].base.completed, stream.batch_size)
        )
        for stream in job.spec.streams.values()
    }
    return min(PLACES * sum(each.values()), REGION_BYTES // 2)


def _stream_bytes(job: Job, name: str) -> int:
    stream = job.spec.streams[name]
    inputs, size = stream.inputs, stream.batch_size
    if not isinstance(inputs, RandomInputs):
        return job.recorded[name].count * job.recorded[name].most_bytes * size
    drawn = drawn_tensors(stream, job.served.models[stream.model])
    total = 0
    for shape, tensors in zip(inputs.request_shapes, drawn, strict=False):
        count = most_entries(inputs, tensors)
        if size == 1:  # equal inputs are stored once
            count = min(count, inputs.unique_of(shape) or count)
        total += count * size * request_bytes(tensors, inputs.string_length)
    return total


def room_note(job: Job) -> str:
    """A note on the needed and free space of `/dev/shm`; empty without shared memory.

    Raises:
        EnvironmentNotReadyError: `/dev/shm` does not exist or has too little space.
    """
    wanted = shared_bytes(job)
    if not wanted:
        return ""
    try:
        free = shutil.disk_usage(SHM).free
    except OSError as error:
        raise EnvironmentNotReadyError(str(error), f"mount a tmpfs at {SHM}") from error
    if wanted > free:
        raise EnvironmentNotReadyError(
            f"workload.shared_memory: requests may need {bytes_text(wanted)} of {SHM}, which has "
            f"{bytes_text(free)} free",
            f"make {SHM} larger (--shm-size of a container, size= of its mount), or reduce the "
            "inputs (unique, batch_size)",
        )
    what = "inputs and outputs" if job.spec.workload.shared_outputs else "inputs"
    return (
        f"{what} are in shared memory: up to {bytes_text(wanted)} of {SHM}, which has "
        f"{bytes_text(free)} free"
    )
