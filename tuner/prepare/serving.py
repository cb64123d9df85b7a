"""The first server of a run, which shows how it completes the configs in the repository."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.checks.machine import no_gpu_memory
from tuner.errors import (
    DeployRefusedError,
    EnvironmentNotReadyError,
    ServerGoneError,
    TooManyFailedTrialsError,
)
from tuner.modelconfig.backends import is_ensemble
from tuner.modelconfig.base import Base
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.served import ServedModel
from tuner.prepare.job import Job
from tuner.prepare.timebook import Phase, TimeBook
from tuner.prepare.tools import Programs
from tuner.reason import Reason, ReasonKind
from tuner.record.remedies import remedies
from tuner.record.store import SERVER_LOG
from tuner.sentences import failed
from tuner.server.log import NO_BACKEND, OTHER_BACKENDS, PORT_TAKEN, meaning
from tuner.server.memory import is_of_gpu
from tuner.space.candidate import Candidate
from tuner.space.parameters import Knob
from tuner.space.space import Space
from tuner.spec.labels import of_label
from tuner.spec.mistakes import listed
from tuner.spec.paths import DYNAMIC_BATCHING, MAX_BATCH_SIZE
from tuner.triton.deploy import Deployer

#: Backends that complete max_batch_size only where the file leaves it open.
_KEEP_THE_SIZE = ("tensorrt", "onnxruntime", "openvino")


class ModelNotServedError(TooManyFailedTrialsError):
    """The server does not serve the models as they are; `message` has its own words."""

    @property
    def refused(self) -> bool:
        """Triton refused the config; else the server crashed or hung over it."""
        return isinstance(self.__cause__, DeployRefusedError)


@dataclass(frozen=True)
class Serving:
    """A server with the models on it.

    Attributes:
        job: With the space over the configs as the server completes them.
        deployer: Its server goes on to serve the first trial.
        load_s: Seconds that starting it and loading the models took.
    """

    job: Job
    programs: Programs
    deployer: Deployer
    load_s: float = 0.0

    @property
    def completed(self) -> str:
        """One sentence on what was completed; empty when nothing was."""
        models = self.job.served.models
        texts = (_completed(model, of_label(name, models)) for name, model in models.items())
        return "; ".join(sentence for sentence in texts if sentence)


def _completed(model: ServedModel, whose: str) -> str:
    size = model.base.completed.max_batch_size
    named = {MAX_BATCH_SIZE: f"max_batch_size {size}"}
    names = listed(named.get(name, name) for name in model.base.completions)
    return names and f"the server completes the config{whose}: {names}"


@contextmanager
def serving(
    job: Job,
    programs: Programs,
    logs: Path,
    book: TimeBook,
    step: Callable[[str], None] = lambda _: None,
) -> Iterator[Serving]:
    """Loads the models as they are in the repository.

    ``step`` receives what the deployer does, for as long as there is one.

    Raises:
        ModelNotServedError: The server cannot, in its own words.
        EnvironmentNotReadyError: No server can be started at all, or it lacks a model's backend or
            the GPU memory that the spec asks for.
        SpecError: The spec is wrong for the configs as they were completed.
    """
    with Deployer(
        programs.launcher,
        job.served,
        logs / SERVER_LOG,
        load_timeout_s=float(job.spec.server.load_timeout),
        unload_first=job.spec.server.unload_first,
        gpus=job.spec.server.gpus,
        step=step,
    ) as deployer:
        begin = time.monotonic()
        with book.phase(Phase.DEPLOYING):
            completed = _complete(job, deployer)
        models = completed.served.models.values()
        deployer.completes = not all(_is_completed_in_nothing(model) for model in models)
        yield Serving(completed, programs, deployer, time.monotonic() - begin)


def _complete(job: Job, deployer: Deployer) -> Job:
    try:
        start = job.space.current.start
        as_it_is = Candidate.of_models({}, start.cache_bytes, start.environment)
        running = deployer.try_out(as_it_is).running
    except (DeployRefusedError, ServerGoneError) as error:
        facts = {"name": job.spec.name}
        reason = Reason(ReasonKind.NOT_SERVED, facts=facts, causes=(error.reason,))
        means, cures = meaning("\n".join(reason.quotes())), "; ".join(remedies([reason]))
        if means == NO_BACKEND:
            cure = OTHER_BACKENDS[job.spec.server.mode]
            raise failed(EnvironmentNotReadyError, reason, cure) from error
        if means == PORT_TAKEN:  # at each attempt
            raise failed(EnvironmentNotReadyError, reason, cures) from error
        cure = cures or "`tune lint` checks Triton's rules"
        raise failed(ModelNotServedError, reason, cure) from error
    if lacking := no_gpu_memory(job.spec, seen=any(map(is_of_gpu, deployer.memory()))):
        raise lacking
    bases = {
        label: Base.of_server(model.base.file, running[label], completes=model.base.completes)
        for label, model in job.served.models.items()
    }
    job = _over(bases, job, deployer)
    by_label = {la: _find_overridden(job.served.models[la], job.space, deployer) for la in bases}
    more = {la: bases[la].overridden | names for la, names in by_label.items() if names}
    overridden = {la: replace(bases[la], overridden=names) for la, names in more.items()}
    return _over(overridden, job, deployer) if overridden else job


def _over(bases: Mapping[str, Base], job: Job, deployer: Deployer) -> Job:
    """Adds what the server made of the configs, to the deployer as well as the job."""
    deployer.served = job.served.over(bases)
    return job.over(deployer.served)


def _is_completed_in_nothing(model: ServedModel) -> bool:
    """Whether a server that completes no config serves the same models.

    Known of an ensemble. Also known of a Python model that has no code for completing its config,
    was not completed in anything, and loads no other models, which might need completing.
    """
    base = model.base
    if is_ensemble(base.file):
        return True
    if base.file.backend != "python" or base.completes or base.completions:
        return False
    return not model.files.mentions("load_model")


def _find_overridden(model: ServedModel, space: Space, deployer: Deployer) -> frozenset[str]:
    """Settings of the space that the server overrides: tried, with one load each."""
    fields = set()
    if model.base.completes:
        smaller, unbatched = _with_smaller_batches(model, space), _without_batcher(model, space)
        running = None if smaller is None else _try(deployer, smaller, model.name)
        if running is not None and running.max_batch_size == model.base.completed.max_batch_size:
            fields.add(MAX_BATCH_SIZE)
        running = None if unbatched is None else _try(deployer, unbatched, model.name)
        if running is not None and running.HasField(DYNAMIC_BATCHING):
            fields.add(DYNAMIC_BATCHING)
    return frozenset(fields)


def _with_smaller_batches(model: ServedModel, space: Space) -> Candidate | None:
    """The current config with a smaller max_batch_size of the space."""
    size = Knob(model.name, MAX_BATCH_SIZE)
    searched = next((p for p in space.parameters if p.knob == size), ())
    config = model.base.completed
    smaller = [v for v in searched if isinstance(v, int) and 1 <= v < config.max_batch_size]
    if not smaller or config.backend in _KEEP_THE_SIZE:
        return None
    candidate = space.candidate({**space.values(space.current), size: max(smaller)})
    return Candidate({**candidate.values, size: max(smaller)})  # it may have no effect


def _without_batcher(model: ServedModel, space: Space) -> Candidate | None:
    """The current config with its dynamic batching off, where the space may have it so."""
    batcher = Knob(model.name, DYNAMIC_BATCHING)
    searched = next((p for p in space.parameters if p.knob == batcher), ())
    known = DYNAMIC_BATCHING in model.base.overridden
    values = space.values(space.current)
    if known or None not in searched or values.get(batcher) is not True:
        return None
    return space.candidate({**values, batcher: None})


def _try(deployer: Deployer, candidate: Candidate, label: str) -> ModelConfig | None:
    """The config that the server runs; None where it refuses: then a trial will show why."""
    try:
        return deployer.try_out(candidate).running[label]
    except (DeployRefusedError, ServerGoneError):
        return None
