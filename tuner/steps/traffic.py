"""Who sends the requests of a run, and how large they are: known before any is sent."""

from __future__ import annotations

from tuner.load.generator import Demand
from tuner.load.generators import Choice, choose, may_reject
from tuner.load.traffic.tensors import TensorShape, content_bytes
from tuner.modelconfig.schema import enum_name
from tuner.space.words import bytes_text
from tuner.spec.workload import RandomInputs
from tuner.steps.job import Job

_POLICY = "queue_policy"


def client_of(job: Job) -> Choice:
    """Which load generator measures: the same in a run, its workers and a check of its config."""
    requests, config = job.spec.the_one.requests, job.space.config.completed
    inputs = requests.inputs
    shapes = inputs.shapes if isinstance(inputs, RandomInputs) else {}
    may_refuse = may_reject(config) or any(_POLICY in path for path in job.space.paths)
    return choose([Demand(config, shapes, requests.batch_size, may_refuse)])


def client_notes(job: Job) -> list[str]:
    """One sentence where perf_analyzer does not measure."""
    choice = client_of(job)
    return [f"measured with {choice.kind.title}: {choice.why}"] if choice.why else []


#: A request of more than this measures the network and the copies, if nobody meant it so.
LARGE_BYTES = 1 << 20
_STRING = "BYTES"


def request_notes(job: Job) -> list[str]:
    """What a request carries; nothing where inputs come from a file or shapes are still open."""
    requests, config = job.spec.the_one.requests, job.space.config.completed
    inputs = requests.inputs
    if not isinstance(inputs, RandomInputs) or not config.input:
        return []
    tensors = []
    for tensor in config.input:
        shape = tuple(inputs.shapes.get(tensor.name, tensor.dims))
        datatype = enum_name(tensor, "data_type").removeprefix("TYPE_")
        if any(d < 0 for d in shape):
            return []
        datatype = _STRING if datatype == "STRING" else datatype
        tensors.append(TensorShape(tensor.name, datatype, shape))
    size = sum(content_bytes(t, inputs.string_length) for t in tensors)
    size *= requests.batch_size
    shapes = ", ".join(f"{t.name} {t.datatype}{list(t.shape)}" for t in tensors)
    note = f"a request carries {bytes_text(size)}: {shapes}"
    if size > LARGE_BYTES:
        note += "; where your users send less, say so in workload.inputs.shapes"
    return [note]


def large_requests(job: Job) -> list[str]:
    """The same, where it is so much that a run must say it."""
    return [note for note in request_notes(job) if "your users send less" in note]
