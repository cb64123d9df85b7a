"""The CPU time that tune's own client needs for a request of a job, and the rate that follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tuner.checks.requests import drawn_tensors
from tuner.errors import SpecError
from tuner.load.client.cost import request_cost_s
from tuner.load.generators import TUNE_CLIENT
from tuner.load.traffic.encoding import drawn_bytes
from tuner.load.validity import BUSY, COSTLY
from tuner.machine.cpus import core_count
from tuner.prepare.job import Job
from tuner.prepare.tools import choose_generator
from tuner.score.judge import tightest_latency
from tuner.spec.units import count_text, digits
from tuner.spec.workload import RandomInputs, SharedMemory
from tuner.triton.launchers import cores_of


def refuse_unreachable(job: Job, environment: Mapping[str, str]) -> None:
    """Refuses a latency SLO below the time that tune's own client needs for a request.

    Raises:
        SpecError: There is such an SLO, which no config can meet.
        LoadFailedError: The processes that measure the client do not run here.
    """
    slo, cost_s = tightest_latency(job.spec.slos), _cost_s(job, environment)
    if slo is None or cost_s is None or 1e6 * cost_s < slo.bound:
        return
    raise SpecError(
        f"{slo} cannot be met: {TUNE_CLIENT.title} itself takes about {digits(1e3 * cost_s, 2)} ms "
        "for a request",
        "raise that bound",
    )


def _cost_s(job: Job, environment: Mapping[str, str], *, shared: bool = True) -> float | None:
    """CPU seconds that tune's own client needs for a request; None if not known.

    Args:
        shared: Use shared memory if the spec does.
    """
    sizes = {name: _request_bytes(job, name) for name in job.spec.shares}
    if choose_generator(job).kind is not TUNE_CLIENT or not all(sizes.values()):
        return None
    cpus, protocol = cores_of(job.spec).load, job.spec.workload.protocol
    if shared and job.spec.workload.shared_memory is SharedMemory.SYSTEM:
        return request_cost_s(0, protocol, cpus, environment)
    return sum(
        share * request_cost_s(sizes[name], protocol, cpus, environment)
        for name, share in job.spec.shares.items()
    )


def sending_notes(
    job: Job, environment: Mapping[str, str], *, costly_only: bool = False
) -> Iterator[str]:
    """A note on the client's CPU time and highest rate, if tune's own client measures.

    Nothing if the size of its requests is not known.

    Args:
        environment: Environment variables of the processes that measure the client.
        costly_only: Only if a request needs more than a tenth of the tightest latency SLO.

    Raises:
        LoadFailedError: The processes that measure the client do not run here.
    """
    cost_s, cpus = _cost_s(job, environment), cores_of(job.spec).load
    if cost_s is None:
        return
    shared = job.spec.workload.shared_memory is SharedMemory.SYSTEM
    without_s = (_cost_s(job, environment, shared=False) if shared else None) or cost_s
    slo, cores = tightest_latency(job.spec.slos), _cores(job, cpus)
    part = 0.0 if slo is None else cost_s / slo.within_s
    if costly_only and part <= COSTLY:
        return
    share_text = f", {part:.0%} of {slo}" if part > COSTLY else ""
    most = f"{digits(cores * BUSY / cost_s, 2)}/s at {BUSY:.0%} of {count_text(cores, 'core')}"
    yield (
        f"the load generator needs about {digits(1e3 * cost_s, 2)} ms of CPU per "
        f"request{share_text}: at most about {most}"
        + (f"; without shared memory it would need {digits(1e3 * without_s, 2)} ms" * shared)
    )


def _cores(job: Job, cpus: Sequence[int]) -> int:
    """Cores that the client certainly has: one if a server on this machine may use the others."""
    return core_count(cpus) if cpus or not job.spec.server.managed else 1


def _request_bytes(job: Job, name: str) -> int:
    """Mean bytes sent for a stream's random requests, or most of recorded ones; 0: not known."""
    stream = job.spec.streams[name]
    inputs = stream.inputs
    if not isinstance(inputs, RandomInputs):
        return job.recorded[name].most_bytes * stream.batch_size
    drawn = drawn_tensors(stream, job.served.models[stream.model])
    in_json = job.spec.workload.in_json
    mean = sum(
        shape.share * drawn_bytes(tensor, inputs, in_json=in_json)
        for shape, tensors in zip(inputs.request_shapes, drawn, strict=False)
        for tensor in tensors
    )
    return round(mean * stream.batch_size)
