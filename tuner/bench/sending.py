"""What it takes our own client to send what a job asks, and so how much it can send."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuner.bench.job import Job, drawn_tensors
from tuner.bench.tools import choose_generator
from tuner.load.client.cost import request_cost_s
from tuner.load.generators import OWN_CLIENT
from tuner.load.traffic.encoding import request_bytes
from tuner.load.validity import BUSY, COSTLY, cores_text
from tuner.machine.host import core_count
from tuner.score.judge import tightest_latency
from tuner.spec.units import digits
from tuner.spec.workload import RandomInputs, SharedMemory
from tuner.triton.launchers import cores_of


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
    sizes = {name: _request_bytes(job, name) for name in job.spec.shares}
    if choose_generator(job).kind is not OWN_CLIENT or not all(sizes.values()):
        return
    cpus, protocol = cores_of(job.spec).load, job.spec.workload.protocol
    without_s = cost_s = sum(
        share * request_cost_s(sizes[name], protocol, cpus, environment)
        for name, share in job.spec.shares.items()
    )
    if shared := job.spec.workload.shared_memory is SharedMemory.SYSTEM:
        cost_s = request_cost_s(0, protocol, cpus, environment)
    slo, cores = tightest_latency(job.spec.slos), core_count(cpus)
    part = 0.0 if slo is None else cost_s / (slo.bound / 1e6)
    if costly_only and part <= COSTLY:
        return
    share_text = f", {part:.0%} of {slo}" if part > COSTLY else ""
    most = f"{BUSY:.0%} of {cores_text(cores)} it can send about {digits(cores * BUSY / cost_s, 2)}"
    yield (
        f"a request takes {OWN_CLIENT.title} about {digits(1e3 * cost_s, 2)} ms of "
        f"CPU{share_text}: with {most}/s"
        + (f"; without shared memory it would take {digits(1e3 * without_s, 2)} ms" * shared)
    )


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
