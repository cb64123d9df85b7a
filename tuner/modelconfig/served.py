"""The models of a run: those it names and those they consist of or call, parts before parents.

The steps of an ensemble are read from the repository by name; what a Python model calls from its
code (business logic scripting, BLS) shows in no config, so the spec names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import MappingProxyType

from tuner.errors import SpecError
from tuner.modelconfig import rules
from tuner.modelconfig.backends import is_ensemble
from tuner.modelconfig.base import Base
from tuner.modelconfig.ensembles import mistakes_between
from tuner.modelconfig.files import ModelFiles, model_names, read_model
from tuner.modelconfig.rules import Rule, Violation
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.tree import field_place
from tuner.modelconfig.values import FieldValue
from tuner.spec.mistakes import listed, meant_or_listed
from tuner.spec.paths import CONFIG_NAME, DELAY, MAX_BATCH_SIZE

#: Label of each model of which something is set, to ModelConfig path, to value.
FieldsOfModels = Mapping[str, Mapping[str, FieldValue]]

#: Answers of `Served.violations`; more take memory and are not asked for again.
_REMEMBERED = 20_000
#: Of this no rule depends; it has so many values that hardly any answer would be asked for again.
_BREAKS_NO_RULE = (DELAY,)
#: What the rules between models depend on.
_SEEN_BY_OTHERS = (MAX_BATCH_SIZE, "input", "output", "ensemble_scheduling")


@dataclass(frozen=True)
class ServedModel:
    """One model of a run.

    Attributes:
        name: Its directory in the repository; in a run its label, the owner in a `Knob`.
        parts: Names of the models in its steps and of those that its code calls.
    """

    name: str
    files: ModelFiles
    base: Base
    parts: tuple[str, ...] = ()

    def place(self, path: str) -> str:
        return field_place(str(self.files.path), self.files.text, path)

    def violations(self, fields: Mapping[str, FieldValue]) -> list[Violation]:
        """Why Triton would refuse it with ``fields``, regardless of other models."""
        config = self.base.message(fields)
        if self.base.assumes_batch(fields):
            config.ClearField("model_warmup")  # its rows fit the batches that the server will set
        of_config = rules.violations(config, completes=self.base.completes)
        all_violations = (*of_config, *self.base.violations(fields))
        return [replace(violation, owner=self.name) for violation in all_violations]


@dataclass(frozen=True)
class Served:
    """The models of a run; the one place where a candidate's fields become their configs.

    Attributes:
        models: By name, in the order in which they are loaded: parts before parents.
    """

    models: Mapping[str, ServedModel]
    _judged: dict[object, list[Violation]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", MappingProxyType(dict(self.models)))

    @classmethod
    def of(cls, base: Base, files: ModelFiles) -> Served:
        """One model by itself."""
        return cls({files.model: ServedModel(files.model, files, base)})

    def parents(self, label: str) -> tuple[str, ...]:
        """Labels of the models that this one is a part of, directly or through others."""
        labels = [label]
        for model in self.models.values():  # each comes after its parts
            if not {*labels}.isdisjoint(model.parts):
                labels.append(model.name)
        return tuple(labels[1:])

    def answering(self, called: Iterable[str]) -> tuple[str, ...]:
        """Labels of models that requests are sent to, and of the steps of ensembles among them."""
        labels = list(dict.fromkeys(called))
        for label in labels:  # grows
            if is_ensemble(self.models[label].base.file):
                labels += [part for part in self.models[label].parts if part not in labels]
        return tuple(labels)

    def over(self, bases: Mapping[str, Base]) -> Served:
        """The same models with the configs a server completed; those not in ``bases`` stay."""
        known = ((label, bases.get(label, m.base), m) for label, m in self.models.items())
        return Served({label: replace(model, base=base) for label, base, model in known})

    def configs(self, fields: FieldsOfModels) -> dict[str, ModelConfig]:
        """What runs when ``fields`` are requested (new messages)."""
        return {la: m.base.message(fields.get(la, {})) for la, m in self.models.items()}

    def requests(self, fields: FieldsOfModels) -> dict[str, ModelConfig]:
        """What the server is given to run ``fields``: the files with the changes (new messages)."""
        return {la: m.base.request(fields.get(la, {})) for la, m in self.models.items()}

    def violations(self, fields: FieldsOfModels) -> list[Violation]:
        """Why Triton would refuse ``fields``: rules of each model, and those between them.

        Answers are cached: a search checks many candidates that are alike in most models.
        """
        violations: list[Violation] = []
        for label, model in self.models.items():
            kept = {p: v for p, v in fields.get(label, {}).items() if p not in _BREAKS_NO_RULE}
            violations += self._once((label, *kept.items()), partial(model.violations, kept))
        for label, ensemble in self.models.items():
            if ensemble.base.file.ensemble_scheduling.step:
                seen = {la: _seen_by_others(fields.get(la, {})) for la in (label, *ensemble.parts)}
                most = seen[label].get(MAX_BATCH_SIZE, ensemble.base.completed.max_batch_size)
                for kept in seen.values():  # a step's larger batches make no difference
                    size = kept.get(MAX_BATCH_SIZE)
                    if isinstance(size, int) and isinstance(most, int) and most:
                        kept[MAX_BATCH_SIZE] = min(size, most)
                key = tuple((la, *kept.items()) for la, kept in seen.items())
                violations += self._once(key, partial(self._between, ensemble, seen))
        return violations

    def place(self, violation: Violation) -> str:
        return self.models[violation.owner].place(violation.path)

    def _between(self, ensemble: ServedModel, fields: FieldsOfModels) -> list[Violation]:
        """An ensemble against its steps."""
        configs = {la: _as_known(self.models[la].base, changes) for la, changes in fields.items()}
        named = {part: configs[part] for part in ensemble.parts}
        return [
            Violation(Rule.ENSEMBLE_STEP, path, message, hint, ensemble.name)
            for path, message, hint in mistakes_between(configs[ensemble.name], named)
        ]

    def _once(self, key: object, judge: Callable[[], list[Violation]]) -> list[Violation]:
        if key not in self._judged:
            if len(self._judged) >= _REMEMBERED:
                self._judged.clear()
            self._judged[key] = judge()
        return self._judged[key]


def _seen_by_others(fields: Mapping[str, FieldValue]) -> dict[str, FieldValue]:
    roots = ((path, path.partition(".")[0].partition("[")[0]) for path in sorted(fields))
    return {path: fields[path] for path, root in roots if root in _SEEN_BY_OTHERS}


def _as_known(base: Base, fields: Mapping[str, FieldValue]) -> ModelConfig:
    """The config as far as others may rely on it: without a placeholder batch size."""
    config = base.message(fields)
    if base.assumes_batch(fields):
        config.ClearField(MAX_BATCH_SIZE)
    return config


def read_served(
    repository: Path,
    names: Iterable[str],
    calls: Mapping[str, Sequence[str]] | None = None,
    *,
    on_cpu: bool = False,
    write_to: str = CONFIG_NAME,
) -> Served:
    """Reads the models that a run names, and all that they consist of or call.

    ``write_to`` as in `read_model`, for all of them.

    Raises:
        EnvironmentNotReadyError: A model cannot be read.
        SpecError: There is no such model, its config does not parse, or the models form a cycle;
            with file and place.
    """
    read: dict[str, ServedModel] = {}
    waiting = list(names)
    for name in waiting:  # grows
        if name in read:
            continue
        files = read_model(repository, name, write_to)
        config = files.config()
        config.name = config.name or name
        backend, completes = files.backend(config), files.completes(config)
        base = Base.of_file(config, completes=completes, backend=backend, on_cpu=on_cpu)
        steps = (step.model_name for step in config.ensemble_scheduling.step)
        # A step without a model is reported by the ensemble's own rules.
        parts = dict.fromkeys((*filter(None, steps), *(calls or {}).get(name, ())))
        read[name] = ServedModel(name, files, base, tuple(parts))
        _refuse_missing(repository, read[name], parts)
        waiting += parts
    return Served({model.name: model for model in _parts_first(read.values())})


def _refuse_missing(repository: Path, model: ServedModel, parts: Iterable[str]) -> None:
    there = model_names(repository)
    for part in parts:
        if part not in there:
            raise SpecError(
                f"{_place_of(model, part)}: there is no model {part!r} in {repository}",
                meant_or_listed(part, there),
            )


def _parts_first(models: Iterable[ServedModel]) -> Iterator[ServedModel]:
    by_name = {model.name: model for model in models}
    order = TopologicalSorter({name: model.parts for name, model in by_name.items()})
    try:
        yield from [by_name[name] for name in order.static_order()]
    except CycleError as error:
        circle = list(reversed(error.args[1]))
        where, text = _place_of(by_name[circle[0]], circle[1]), listed(circle, " -> ")
        raise SpecError(f"{where}: the models form a cycle: {text}", "break it") from error


def _place_of(parent: ServedModel, part: str) -> str:
    """The place that names a part: the model's config, or the spec for what its code calls."""
    for index, step in enumerate(parent.base.file.ensemble_scheduling.step):
        if step.model_name == part:
            return parent.place(f"ensemble_scheduling.step[{index}].model_name")
    return f"models.{parent.name}.calls"
