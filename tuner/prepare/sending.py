"""What it takes our own client to send what a job asks, and so how much it can send."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tuner.checks.requests import drawn_tensors
from tuner.errors import SpecError
from tuner.load.client.cost import request_cost_s
from tuner.load.generators import TUNE_CLIENT
from tuner.load.traffic.encoding import request_bytes
from tuner.load.validity import BUSY, COSTLY
from tuner.machine.cpus import core_count
from tuner.prepare.job import Job
from tuner.prepare.tools import choose_generator
from tuner.score.judge import tightest_latency
from tuner.spec.units import count_text, digits
from tuner.spec.workload import RandomInputs, SharedMemory
from tuner.triton.launchers import cores_of


def refuse_unreachable(job: Job, environment: Mapping[str, str]) -> None:
    """Refuses an SLO on the latency that is below what our own client takes for a request.

    Raises:
        SpecError: There is one, which no model and no config can meet.
        LoadFailedError: The processes that measure it do not run here.
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
    """CPU seconds that our own client takes for a request; None where it is not known.

    ``shared``: with shared memory, where the spec uses it.
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
    """One sentence where our own client measures, and the size of its requests is known.

    Args:
        environment: Of the processes that are started to measure it.
        costly_only: Only where a request takes more than a tenth of the tightest latency SLO.

    Raises:
        LoadFailedError: They do not run here.
    """
    cost_s, cpus = _cost_s(job, environment), cores_of(job.spec).load
    if cost_s is None:
        return
    shared = job.spec.workload.shared_memory is SharedMemory.SYSTEM
    without_s = (_cost_s(job, environment, shared=False) if shared else None) or cost_s
    slo, cores = tightest_latency(job.spec.slos), _cores(job, cpus)
    part = 0.0 if slo is None else cost_s / (slo.bound / 1e6)
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
    """How many it has for certain: one where a server on this machine may get the others."""
    return core_count(cpus) if cpus or not job.spec.server.managed else 1


def _request_bytes(job: Job, name: str) -> int:
    """The mean size of a stream's random requests, the most of recorded ones; 0: not known yet."""
    stream = job.spec.streams[name]
    inputs = stream.inputs
    if not isinstance(inputs, RandomInputs):
        return job.recorded[name].most_bytes * stream.batch_size
    drawn = drawn_tensors(stream, job.served.models[stream.model])
    mean = sum(
        shape.share * request_bytes(tensors, inputs.string_length)
        for shape, tensors in zip(inputs.request_shapes, drawn, strict=False)
    )
    return round(mean * stream.batch_size)
