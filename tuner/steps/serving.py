"""The first server of a run, asked for the config that it makes of the file in the repository."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.errors import DeployRefusedError, ServerGoneError, TooManyFailedTrialsError
from tuner.modelconfig.base import Base
from tuner.modelconfig.schema import ModelConfig
from tuner.run.timebook import Phase, TimeBook
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.paths import DYNAMIC_BATCHING, MAX_BATCH_SIZE
from tuner.steps.job import Job
from tuner.steps.tools import Programs
from tuner.triton.deploy import Deployer

#: Backends that complete max_batch_size only where the file leaves it open.
_KEEP_THE_SIZE = ("tensorrt", "onnxruntime", "openvino")


class ModelNotServedError(TooManyFailedTrialsError):
    """The server does not serve the model as it is in the repository; `message` has its words."""

    @property
    def refused(self) -> bool:
        """Triton refused the config; else the server crashed or hung over it."""
        return isinstance(self.__cause__, DeployRefusedError)


@dataclass(frozen=True)
class Serving:
    """A server with the model on it.

    Attributes:
        job: With the space over the config as the server completes it.
        deployer: Its server goes on to serve the first trial.
        load_s: What starting it and loading the model took.
    """

    job: Job
    programs: Programs
    deployer: Deployer
    load_s: float = 0.0

    @property
    def completed(self) -> str:
        """One sentence on what was completed; empty when nothing was."""
        config = self.job.space.config
        size = config.completed.max_batch_size
        named = {MAX_BATCH_SIZE: f"max_batch_size {size}"}
        found = ", ".join(named.get(name, name) for name in config.completions)
        return found and f"the server completes the config: {found}"


@contextmanager
def serving(job: Job, programs: Programs, logs: Path, book: TimeBook) -> Iterator[Serving]:
    """Loads the model as it is in the repository.

    Raises:
        ModelNotServedError: The server cannot, in its own words.
        EnvironmentNotReadyError: No server can be started at all.
        SpecError: The spec is wrong for the config as it was completed.
        NothingToSearchError: That config leaves nothing to search.
    """
    with Deployer(
        programs.launcher,
        job.spec.model,
        job.space.config,
        logs / "server.log",
        load_timeout_s=float(job.spec.server.load_timeout),
        unload_first=job.spec.server.unload_first,
    ) as deployer:
        begin = time.monotonic()
        with book.phase(Phase.DEPLOYING):
            completed = _complete(job, deployer)
        deployer.completes = not _completes_nothing(completed)
        yield Serving(completed, programs, deployer, time.monotonic() - begin)


def _complete(job: Job, deployer: Deployer) -> Job:
    try:
        running = deployer.try_out(Candidate.of_models({}, job.space.current.cache_bytes)).running
    except (DeployRefusedError, ServerGoneError) as error:
        raise ModelNotServedError(
            f"the server does not load {job.spec.model} as it is in the repository: "
            f"{error.message}",
            "logs/server.log holds the server's own words; `tune lint` knows Triton's rules",
        ) from error
    known = job.space.config
    deployer.base = Base.of_server(known.file, running, completes=known.completes)
    job = job.over(deployer.base)
    overridden = deployer.base.overridden | _find_overridden(job.space, deployer)
    if overridden == deployer.base.overridden:
        return job
    deployer.base = replace(deployer.base, overridden=overridden)
    return job.over(deployer.base)


def _completes_nothing(job: Job) -> bool:
    """Whether a server that completes no config serves the same: known of a Python model that has
    no code for it, was completed in nothing, and loads no other models, which it may be the first
    to complete.
    """
    base = job.space.config
    if base.file.backend != "python" or base.completes or base.completions:
        return False
    return not job.model.mentions("load_model")


def _find_overridden(space: Space, deployer: Deployer) -> frozenset[str]:
    """What the server sets by itself, of what the space would have otherwise: tried, a load each.

    Only of a model that may complete its config.
    """
    found = set()
    if space.config.completes:
        smaller, unbatched = _with_smaller_batches(space), _without_batcher(space)
        running = None if smaller is None else _try(deployer, smaller)
        if running is not None and running.max_batch_size == space.base.max_batch_size:
            found.add(MAX_BATCH_SIZE)
        running = None if unbatched is None else _try(deployer, unbatched)
        if running is not None and running.HasField(DYNAMIC_BATCHING):
            found.add(DYNAMIC_BATCHING)
    return frozenset(found)


def _with_smaller_batches(space: Space) -> Candidate | None:
    """The current config with a smaller max_batch_size of the space."""
    searched = next((p for p in space.parameters if p.path == MAX_BATCH_SIZE), ())
    now = space.base.max_batch_size
    smaller = [v for v in searched if isinstance(v, int) and 1 <= v < now]
    if not smaller or space.base.backend in _KEEP_THE_SIZE:
        return None
    return space.candidate({**space.values(space.current), MAX_BATCH_SIZE: max(smaller)})


def _without_batcher(space: Space) -> Candidate | None:
    """The current config with its dynamic batching off, where the space may have it so."""
    searched = next((p for p in space.parameters if p.path == DYNAMIC_BATCHING), ())
    known = DYNAMIC_BATCHING in space.config.overridden
    values = space.values(space.current)
    if known or None not in searched or values.get(DYNAMIC_BATCHING) is not True:
        return None
    return space.candidate({**values, DYNAMIC_BATCHING: None})


def _try(deployer: Deployer, candidate: Candidate) -> ModelConfig | None:
    """What the server runs of it; None where it refuses: then a trial will tell."""
    try:
        return deployer.try_out(candidate).running
    except (DeployRefusedError, ServerGoneError):
        return None
