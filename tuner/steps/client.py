"""Which load generator measures: the same in a run, its workers and a check of its config."""

from __future__ import annotations

from tuner.load.generator import Demand
from tuner.load.generators import Choice, choose, may_reject
from tuner.spec.workload import RandomInputs
from tuner.steps.job import Job

_POLICY = "queue_policy"


def client_of(job: Job) -> Choice:
    """Follows from the spec and from the model's config, as far as the job knows it."""
    workload, config = job.spec.workload, job.space.config.completed
    inputs = workload.inputs
    shapes = inputs.shapes if isinstance(inputs, RandomInputs) else {}
    may_refuse = may_reject(config) or any(_POLICY in path for path in job.space.paths)
    return choose(Demand(config, shapes, workload.batch_size, may_refuse))


def client_notes(job: Job) -> list[str]:
    """One sentence where perf_analyzer does not measure."""
    choice = client_of(job)
    return [f"measured with {choice.kind.title}: {choice.why}"] if choice.why else []
