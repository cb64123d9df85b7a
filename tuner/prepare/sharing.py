"""What `/dev/shm` must have room for where the inputs of requests lie in it."""

from __future__ import annotations

import shutil

from tuner.checks.requests import drawn_tensors
from tuner.errors import EnvironmentNotReadyError
from tuner.load.traffic.encoding import request_bytes
from tuner.load.traffic.inputs import most_entries
from tuner.prepare.job import Job
from tuner.server.shared_memory import REGION_BYTES, SHM
from tuner.spec.units import bytes_text
from tuner.spec.workload import RandomInputs, SharedMemory


def shared_bytes(job: Job) -> int:
    """The most that the inputs of one measurement take of it; 0 where they lie in requests.

    Of inputs that only a server knows, nothing is counted.
    """
    if job.spec.workload.shared_memory is not SharedMemory.SYSTEM:
        return 0
    return min(sum(_stream_bytes(job, name) for name in job.spec.streams), REGION_BYTES)


def _stream_bytes(job: Job, name: str) -> int:
    stream = job.spec.streams[name]
    inputs, size = stream.inputs, stream.batch_size
    if not isinstance(inputs, RandomInputs):
        return job.recorded[name].count * job.recorded[name].most_bytes * size
    drawn = drawn_tensors(stream, job.served.models[stream.model])
    total = 0
    for shape, tensors in zip(inputs.request_shapes, drawn, strict=False):
        count = most_entries(inputs, tensors)
        if inputs.unique is not None and size == 1:  # equal ones are laid once
            count = min(count, max(round(inputs.unique * shape.share), 1))
        total += count * size * request_bytes(tensors, inputs.string_length)
    return total


def room_note(job: Job) -> str:
    """How much of it inputs take, and how much there is; empty where they lie in requests.

    Raises:
        EnvironmentNotReadyError: It has no room for them.
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
            f"workload.shared_memory: inputs may take {bytes_text(wanted)} of {SHM}, which has "
            f"{bytes_text(free)} free",
            f"make {SHM} larger (--shm-size of a container, size= of its mount), or ask for fewer "
            "inputs (unique, or a smaller batch_size)",
        )
    return (
        f"inputs lie in shared memory: up to {bytes_text(wanted)} of {SHM}, which has "
        f"{bytes_text(free)} free"
    )
