"""From a spec file to a job: everything that can be known before a process is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tuner.errors import SpecError
from tuner.modelconfig.base import Base
from tuner.modelconfig.encoding import UTF_8
from tuner.modelconfig.files import ModelFiles, read_model
from tuner.modelconfig.message import parse
from tuner.modelconfig.tree import field_place
from tuner.score.load_plan import LoadPlan, load_plan
from tuner.space.build import build_space
from tuner.space.judge import refuse_unmeasurable
from tuner.space.space import Space
from tuner.spec.load import LoadedSpec, load_spec
from tuner.spec.model import Spec
from tuner.spec.units import Seconds


@dataclass(frozen=True)
class Request:
    """What the user asked for on the command line; None leaves the spec's word.

    Attributes:
        resume: Directory of an earlier run to go on with.
        write: Write the winner into the repository.
        storage: SQLAlchemy URL of the Optuna study; a file of the run by default.
        environment: Variables for child processes and for finding programs.
        command: How tune was called, for the manifest.
    """

    spec: Path
    output: Path = Path("results")
    resume: Path | None = None
    trials: int | None = None
    time_budget_s: float | None = None
    seed: int | None = None
    write: bool = True
    storage: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """A checked spec with the model it is about.

    Attributes:
        spec: With the command line's words in it.
        config: Triton's ModelConfig message of the file as it is.
        space: Over the config as far as it is known: what the file says, until a server was asked.
    """

    loaded: LoadedSpec
    spec: Spec
    model: ModelFiles
    config: Any
    space: Space
    plan: LoadPlan

    def over(self, base: Base) -> Job:
        """The same over what a server completed.

        Raises:
            SpecError: The spec's space is wrong for it.
            NothingToSearchError: It leaves nothing to search.
        """
        return replace(self, space=_space(self.loaded, self.spec, self.model, base))


def prepare(request: Request) -> Job:
    """Reads and checks the spec, the model's config, and the space of both.

    Raises:
        SpecError: The spec is wrong, by itself or for this model.
        NothingToSearchError: The space holds nothing beside the current config.
        EnvironmentNotReadyError: There is no such repository or model.
    """
    loaded = load_spec(request.spec)
    return job_from(loaded, _with_words_of(request, loaded.spec))


def job_from(loaded: LoadedSpec, spec: Spec) -> Job:
    """The model that a checked spec is about, and the space of both.

    Raises:
        SpecError: The spec is wrong for this model.
        NothingToSearchError: The space holds nothing beside the current config.
        EnvironmentNotReadyError: There is no such repository or model.
    """
    model = read_model(spec.repository, spec.model)
    config = parse(model.text, str(model.path))
    if not config.name:
        config.name = spec.model
    _refuse_mixed_encodings(model, spec)
    base = Base.of_file(config, completes=model.completes(config))
    space = _space(loaded, spec, model, base)
    return Job(
        loaded, spec, model, config, space, load_plan(spec.workload, spec.objective, spec.slo)
    )


def _refuse_mixed_encodings(model: ModelFiles, spec: Spec) -> None:
    """Early, not when a winner is to be written."""
    if model.encoding != UTF_8 and not spec.model_dump_json(include={"space"}).isascii():
        raise SpecError(
            f"{model.path} has comments in Latin-1, and the spec's space has text beyond ASCII",
            "save config.pbtxt as UTF-8",
        )


def _space(loaded: LoadedSpec, spec: Spec, model: ModelFiles, base: Base) -> Space:
    refuse_unmeasurable(spec.model, base.completed)
    place = partial(field_place, str(model.path), model.text)
    return build_space(spec, base, loaded.space_positions, place)


def _with_words_of(request: Request, spec: Spec) -> Spec:
    budget: dict[str, Any] = {}
    if request.trials is not None:
        budget["trials"] = request.trials
    if request.time_budget_s is not None:
        budget["time"] = Seconds(request.time_budget_s)
    search = {} if request.seed is None else {"seed": request.seed}
    return spec.model_copy(
        update={
            "budget": spec.budget.model_copy(update=budget),
            "search": spec.search.model_copy(update=search),
        }
    )
