"""The models of a repository: the fields that `tune init` would search, and why not more."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from tuner.errors import SpecError, TunerError
from tuner.lint.completion import as_code_completes
from tuner.lint.cuda import cuda_use_of
from tuner.lint.model_calls import called_models, calling_sources
from tuner.lint.model_py import threads_left_open
from tuner.lint.repository import lint_repository
from tuner.lint.rules import Severity
from tuner.machine.host import read_host
from tuner.modelconfig.backends import PLATFORM, is_ensemble
from tuner.modelconfig.base import turns_on_batching
from tuner.modelconfig.files import ModelFiles, is_one_model, model_names, read_model, weights_bytes
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.served import read_served
from tuner.modelconfig.tree import locate
from tuner.space.build import refuse_unmeasurable
from tuner.space.draft import draft_spec
from tuner.space.draft_instances import Machine
from tuner.space.draft_space import DraftedModel, why_unbatched
from tuner.space.words import SHORT_NAMES
from tuner.spec.paths import CONFIG_NAME
from tuner.spec.units import count_text

HEADER = ("model", "backend", "versions", "batching", "what can be tuned", "why not more")


@dataclass(frozen=True)
class ModelRow:
    """A model of a repository.

    Attributes:
        backend: Backend by the config or by a file's name; empty: not known.
        versions: Versions in the model's directory.
        batching: How the model batches, in words.
        tunable: Paths that `tune init` would search, by model: this model and those that are
            served with it. Empty: the model cannot be tuned.
        why_not: Why nothing can be tuned, or why batching cannot; else empty.
        hint: How to fix that.
    """

    model: str
    backend: str = ""
    versions: tuple[int, ...] = ()
    batching: str = ""
    tunable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    why_not: str = ""
    hint: str = ""

    def cells(self) -> tuple[str, ...]:
        """The columns of `HEADER`."""
        fields = [SHORT_NAMES.get(path, path) for path in self.tunable.get(self.model, ())]
        parts = [name for name in self.tunable if name != self.model]
        tunable = ", ".join([*fields, *([f"with it: {' '.join(parts)}"] if parts else [])])
        versions, why_not = ", ".join(map(str, self.versions)), self.why_not.partition("\n")[0]
        return (self.model, self.backend, versions, self.batching, tunable or "nothing", why_not)


def list_models(repository: Path, environment: Mapping[str, str]) -> list[ModelRow]:
    """All models of a repository by name, including those with an invalid config.

    Raises:
        EnvironmentNotReadyError: The repository cannot be read.
        SpecError: The directory has no models, or is the directory of one model.
    """
    if is_one_model(repository):
        above = repository.absolute().parent
        text = f"{repository} is the directory of one model"
        raise SpecError(text, f"tune models {shlex.quote(str(above))}")
    errors: dict[str, SpecError] = {}
    for finding in lint_repository(repository):
        if finding.severity is Severity.ERROR:
            name = finding.file.relative_to(repository).parts[0]
            errors.setdefault(name, SpecError(f"{finding.place}: {finding.message}", finding.hint))
    machine = read_machine(environment)
    return [_row(repository, name, errors, machine) for name in model_names(repository)]


def read_machine(environment: Mapping[str, str]) -> Machine:
    """The facts about this machine that a draft depends on."""
    host = read_host(environment)
    memories = [gpu.memory_bytes for gpu in host.gpus if gpu.memory_bytes is not None]
    return Machine(host.cores, len(host.gpus), min(memories, default=None), host.memory_bytes)


def _row(
    repository: Path, name: str, errors: Mapping[str, SpecError], machine: Machine
) -> ModelRow:
    row = ModelRow(name)
    try:
        files = read_model(repository, name, within_repository=True)
        row = replace(row, versions=files.versions)
        config = files.config()
        backend = PLATFORM if is_ensemble(config) else files.backend(config)
        row = replace(row, backend=backend, batching=_batching(files, config))
        tunable = _tunable(repository, files, errors, machine)
    except TunerError as error:
        return replace(row, why_not=error.message, hint=error.hint)
    why_not = why_unbatched(config, completes=files.completes(config)) if name in tunable else ""
    return replace(row, tunable=tunable, why_not=why_not)


def _batching(files: ModelFiles, config: ModelConfig) -> str:
    completes, largest = files.completes(config), config.max_batch_size
    if config.HasField("sequence_batching"):
        return "sequences"
    if largest <= 1:
        return "left to the server" if completes and not largest else "none"
    dynamic = config.HasField("dynamic_batching")
    dynamic |= completes and turns_on_batching(files.backend(config), config)
    return f"up to {largest}{', dynamic' if dynamic else ''}"


def _tunable(
    repository: Path, files: ModelFiles, errors: Mapping[str, SpecError], machine: Machine
) -> dict[str, tuple[str, ...]]:
    """Paths that the draft for a model searches, by model.

    Raises:
        TunerError: The model cannot be tuned.
    """
    model = files.model
    if model in errors:
        raise errors[model]
    parts = parts_of(
        repository, model, within_repository=True
    )  # first, since it reads no config outside the repository
    served = read_served(repository, [model])
    for name in served.answering([model]):
        refuse_unmeasurable(name, served.models[name].base.completed)
    for name in parts:
        if name in errors:
            raise SpecError(f"it needs {name}: {errors[name].message}", errors[name].hint)
    drafted = yaml.safe_load(draft_spec(parts, machine, "."))
    models = drafted.get("models") or {model: drafted}
    return {name: tuple(part["space"]) for name, part in models.items() if part.get("space")}


def parts_of(
    repository: Path,
    model: str,
    write_to: str = CONFIG_NAME,
    calling: Iterable[str] = (),
    *,
    within_repository: bool = False,
) -> dict[str, DraftedModel]:
    """The model, then every model that is served with it, by name.

    Args:
        calling: Models that the model's code calls in addition to those that it names.
        within_repository: See `read_model`.
    """
    there, reached = model_names(repository), dict[str, DraftedModel]()
    waiting, least = [model], defaultdict[str, int](int)
    for name in waiting:  # grows
        if name in reached or name not in there:
            continue
        files = read_model(repository, name, write_to, within_repository=within_repository)
        config = files.config()
        called, unnamed = called_models(files, config, there)
        calls = tuple(dict.fromkeys((*called, *(calling if name == model else ()))))
        config.backend = files.backend(config)
        sources = (source for _, source in calling_sources(files, config))
        config, sizes = as_code_completes(config, sources)
        rows = [(sample.batch_size, at) for at, sample in enumerate(config.model_warmup)]
        least[name], at = max([(least[name], -1), *rows])
        line, _ = locate(files.text, f"model_warmup[{at}].batch_size")
        rows_text = count_text(least[name], "row")
        why = f"No smaller size: the sample in line {line}, model_warmup, has {rows_text}."
        part = DraftedModel(config, files.completes(config), calls, unnamed)
        part = replace(part, unbatched_by_code=bool(sizes) and max(sizes) <= 1)
        threads = threads_left_open(files, config)
        variables = tuple(filter(None, dict.fromkeys(threads.values())))
        part = replace(part, threads=tuple(threads), variables=variables, versions=files.versions)
        part = replace(part, cuda=cuda_use_of(files, config))
        size = weights_bytes(files.directory, config, files.versions)
        reached[name] = replace(part, why_least=why if at >= 0 else "", weights_bytes=size)
        for step in config.ensemble_scheduling.step:
            least[step.model_name] = max(least[step.model_name], config.max_batch_size)
            waiting.append(step.model_name)
        waiting += calls
    return {name: replace(part, least_batch=least[name]) for name, part in reached.items()}
