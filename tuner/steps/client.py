"""Which load generator measures: the same in a run, its workers and a check of its config."""

from __future__ import annotations

from tuner.load.choice import Choice, choose, may_reject
from tuner.spec.workload import RandomInputs
from tuner.steps.job import Job

_POLICY = "queue_policy"


def client_of(job: Job) -> Choice:
    """Follows from the spec and from the model's config, as far as the job knows it."""
    workload, config = job.spec.workload, job.space.config.completed
    inputs = workload.inputs
    return choose(
        config,
        inputs.shapes if isinstance(inputs, RandomInputs) else {},
        workload.batch_size,
        may_refuse=may_reject(config) or any(_POLICY in path for path in job.space.paths),
    )


def client_note(choice: Choice) -> str:
    """One sentence where perf_analyzer does not measure; else empty."""
    return choice.why and f"measured with {choice.client}: {choice.why}"
