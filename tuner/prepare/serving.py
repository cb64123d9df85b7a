"""The first server of a run, which shows how it completes the configs in the repository."""

from __future__ import annotations

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

#: Backends that complete max_batch_size only if the file does not set it.
_KEEP_THE_SIZE = ("tensorrt", "onnxruntime", "openvino")


class ModelNotServedError(TooManyFailedTrialsError):
    """The server does not serve the models with their current configs; quotes the server."""

    @property
    def refused(self) -> bool:
        """Whether Triton refused the config; otherwise the server crashed or hung."""
        return isinstance(self.__cause__, DeployRefusedError)


@dataclass(frozen=True)
class Serving:
    """A server that has loaded the models.

    Attributes:
        job: The job over the configs as the server completes them.
        deployer: Has the running server, which also serves the first trial.
        load_s: Seconds for starting the server and loading the models.
    """

    job: Job
    programs: Programs
    deployer: Deployer
    load_s: float = 0.0

    @property
    def completed(self) -> str:
        """A note on the fields that the server completed; empty if there are none."""
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
    """Starts a server, and loads the models with the configs of the repository.

    Args:
        logs: Directory of the server's log.
        step: Receives each step of the deployer while the context is open.

    Raises:
        ModelNotServedError: The server does not load the models, with its message.
        EnvironmentNotReadyError: No server starts, or it lacks a model's backend, or an SLO is on
            GPU metrics and there is no GPU.
        SpecError: The spec does not fit the completed configs.
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
        before_s = book.seconds(Phase.DEPLOYING)
        with book.phase(Phase.DEPLOYING):
            completed = _complete(job, deployer)
        load_s = book.seconds(Phase.DEPLOYING) - before_s
        models = completed.served.models.values()
        deployer.completes = not all(_is_completed_in_nothing(model) for model in models)
        yield Serving(completed, programs, deployer, load_s)


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
        if means == PORT_TAKEN:  # in every attempt
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
    """The job over the completed configs, which the deployer gets, too."""
    deployer.served = job.served.over(bases)
    return job.over(deployer.served)


def _is_completed_in_nothing(model: ServedModel) -> bool:
    """Whether the model is the same on a server that does not complete configs.

    True for an ensemble, and for a Python model that has no code for completing its config, whose
    config was not completed, and which loads no other models that might need completing.
    """
    base = model.base
    if is_ensemble(base.file):
        return True
    if base.file.backend != "python" or base.completes or base.completions:
        return False
    return not model.files.mentions("load_model")


def _find_overridden(model: ServedModel, space: Space, deployer: Deployer) -> frozenset[str]:
    """Searched fields that the server overrides, found with one model load for each."""
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
    """The current config with dynamic batching off, if the space has that value."""
    batcher = Knob(model.name, DYNAMIC_BATCHING)
    searched = next((p for p in space.parameters if p.knob == batcher), ())
    known = DYNAMIC_BATCHING in model.base.overridden
    values = space.values(space.current)
    if known or None not in searched or values.get(batcher) is not True:
        return None
    return space.candidate({**values, batcher: None})


def _try(deployer: Deployer, candidate: Candidate, label: str) -> ModelConfig | None:
    """The config that the server runs; None if it refuses the candidate."""
    try:
        return deployer.try_out(candidate).running[label]
    except (DeployRefusedError, ServerGoneError):
        return None
