"""Who sends the requests of a run, and how large they are: known before any is sent."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.load.generators import OWN_CLIENT, Choice, Demand, choose, may_reject
from tuner.load.traffic.encoding import content_bytes
from tuner.modelconfig.served import ServedModel
from tuner.space.words import bytes_text
from tuner.spec.labels import of_label
from tuner.spec.workload import Protocol, RandomInputs, StreamSpec
from tuner.steps.job import Job, drawn_tensors
from tuner.triton.launchers import cores_of

_POLICY = "queue_policy"


def client_of(job: Job) -> Choice:
    """Which load generator measures: the same in a run, its workers and a check of its config."""
    if not job.has_perf_analyzer:
        return Choice(OWN_CLIENT, "there is no perf_analyzer here")
    if job.spec.server.headers_from_env:
        return Choice(OWN_CLIENT, "perf_analyzer would show headers in the list of processes")
    if job.spec.server.tls and job.spec.workload.protocol is Protocol.HTTP:
        return Choice(OWN_CLIENT, "perf_analyzer is given TLS over gRPC only")
    may_refuse = any(
        may_reject(model.base.completed) for model in job.served.models.values()
    ) or any(_POLICY in path for path in job.space.paths)
    return choose([_demand(job, stream, may_refuse) for stream in job.spec.streams.values()])


def _demand(job: Job, stream: StreamSpec, may_refuse: bool) -> Demand:
    inputs = stream.inputs
    shapes = inputs.shapes if isinstance(inputs, RandomInputs) else {}
    config = job.served.models[stream.model].base.completed
    return Demand(config, shapes, stream.batch_size, may_refuse, stream.priority or 0)


def client_notes(job: Job) -> list[str]:
    """One sentence where perf_analyzer does not measure, and one where CPUs are kept apart.

    Raises:
        EnvironmentNotReadyError: The spec names CPUs that tune may not use here.
    """
    choice, cores = client_of(job), str(cores_of(job.spec))
    who = f"measured with {choice.kind.title}: {choice.why}" if choice.why else ""
    return [note for note in (who, cores) if note]


#: A larger request mainly measures the network and the copies, perhaps unintentionally.
LARGE_BYTES = 1 << 20


def request_notes(job: Job) -> list[str]:
    """What a request of each stream carries, where that is not from a file."""
    found = {name: job.served.models[stream.model] for name, stream in job.spec.streams.items()}
    return [note for name, model in found.items() for note in _request_note(job, name, model)]


def _request_note(job: Job, name: str, model: ServedModel) -> Iterator[str]:
    stream = job.spec.streams[name]
    tensors = drawn_tensors(stream, model)
    if not tensors or not isinstance(stream.inputs, RandomInputs):
        return
    size = sum(content_bytes(t, stream.inputs.string_length) for t in tensors)
    size *= stream.batch_size
    shapes = ", ".join(f"{t.name} {t.datatype}{list(t.shape)}" for t in tensors)
    left = {t.name for t in model.base.completed.input} - {t.name for t in tensors}
    without = f" (without the optional {', '.join(sorted(left))})" if left else ""
    whose = of_label(name, job.spec.streams)
    note = f"a request{whose} carries {bytes_text(size)}: {shapes}{without}"
    if size > LARGE_BYTES:
        where = f"streams.{name}.inputs" if whose else "workload.inputs"
        note += f"; where your users send less, say so in {where}.shapes"
    yield note


def large_requests(job: Job) -> list[str]:
    """The same, where requests are so large that a run must say so."""
    return [note for note in request_notes(job) if "your users send less" in note]
