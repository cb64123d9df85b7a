"""Model Analyzer's YAML, read without Model Analyzer: the options that hold for one model.

The format is that of `model-analyzer profile -f FILE`, release 1.58.0 (its docs/config.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tuner.errors import SpecError
from tuner.model_analyzer.options import MODEL_OPTIONS, OPTIONS, PARAMETERS
from tuner.spec.mistakes import Finding, Location, Mistake, SpecMistakesError, dotted
from tuner.spec.suggest import in_brackets
from tuner.spec.yaml_tree import BadYamlError, Position, Tree, read_yaml_file

_T = TypeVar("_T")
_ADVICE = "the options are in docs/config.md of Model Analyzer"
#: A model's own options, and where they are.
_Own = tuple[dict[str, Any], Location]

_HINT = "docs/model-analyzer.md says what is taken over from Model Analyzer's YAML"


#: Most numbers that one option may expand to.
MOST_NUMBERS = 10_000


@dataclass(frozen=True)
class Left:
    """An option that was not carried over, and why."""

    option: str
    line: int | None  # None for one that is not given
    reason: str

    def __str__(self) -> str:
        line = "" if self.line is None else f" (line {self.line})"
        return f"{self.option}{line}: {self.reason}"


@dataclass
class Profile:
    """What a YAML says for one model. Options are taken as they are used; the rest is reported.

    Attributes:
        model: The model.
        others: Models of the same file.
        left: What is not carried over, so far.
    """

    path: Path
    model: str
    others: tuple[str, ...]
    tree: Tree
    values: Mapping[str, Any]
    places: Mapping[str, Location]
    left: list[Left] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def take(self, option: str) -> Any:
        """The option's value, None when it is not given."""
        self.taken.add(option)
        return self.values.get(option)

    def take_text(self, option: str) -> str | None:
        return self._take_as(str, option, "text is expected")

    def take_number(self, option: str) -> int | None:
        return self._take_as(int, option, "a whole number is expected")

    def take_mapping(self, option: str) -> dict[str, Any]:
        return self._take_as(dict, option, "a mapping of names to values is expected") or {}

    def _take_as(self, kind: type[_T], option: str, expected: str) -> _T | None:
        value = self.take(option)
        if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
            return value
        raise self.mistake((option,), expected)

    def take_numbers(self, option: str) -> tuple[int, ...]:
        """A list, ``1,2,4``, or ``{start: 1, stop: 8, step: 1}``; ascending, each once."""
        value = self.take(option)
        if value is None:
            return ()
        try:
            return tuple(sorted(set(_numbers(value))))
        except OverflowError as error:
            raise self.mistake((option,), str(error)) from None
        except (ValueError, TypeError, KeyError, ZeroDivisionError):
            text = "whole numbers are expected: a list, or {start: 1, stop: 8, step: 1}"
            raise self.mistake((option,), text) from None

    def leave(self, where: Location, reason: str) -> None:
        """``where`` begins with an option; its value is not carried over."""
        line = self._position(where).line if where[0] in self.values else None
        self.left.append(Left(dotted(where), line, reason))

    def mistake(self, where: Location, message: str) -> SpecError:
        return _error([_mistake(self.path, self._position(where), where, message)])

    def _position(self, where: Location) -> Position:
        place = self.places.get(str(where[0]), where[:1])
        return self.tree.position(Finding((*place, *where[1:]), "", key=True))


def read_profile(path: Path, model: str | None) -> Profile:
    """The options of a model; without a name, of the only one in the file.

    Raises:
        SpecError: The file cannot be read, is not one of Model Analyzer's, or does not say which
            model; the message has ``file:line:column`` for every mistake.
    """
    tree = _tree(path)
    models = dict(_models(path, tree))
    _refuse_unknown(path, tree, models)
    name = _chosen(path, tree, models, model)
    own, at = models[name]
    values, places = _merged(tree.data, own, at)
    others = tuple(other for other in models if other != name)
    return Profile(path, name, others, tree, values, places)


def _tree(path: Path) -> Tree:
    try:
        _, tree = read_yaml_file(path)
    except BadYamlError as error:
        raise _error([_mistake(path, error.position, (), error.message)]) from error
    mistakes = [_mistake(path, at, where, message) for at, where, message in tree.problems]
    if not isinstance(tree.data, dict):
        message = f"not a mapping of options to values; {_ADVICE}"
        mistakes.append(_mistake(path, Position(1, 1), (), message))
    if mistakes:
        raise _error(mistakes)
    return tree


def _models(path: Path, tree: Tree) -> Iterator[tuple[str, _Own]]:
    """Name, own options and where they are: a list of names, a mapping, or a mixture."""
    top: Location = ("profile_models",)
    given = tree.data.get("profile_models")
    if isinstance(given, str):
        given = [name.strip() for name in given.split(",")]
    if isinstance(given, dict):
        parts: list[tuple[Location, Any]] = [(top, given)]
    elif isinstance(given, list) and given:
        parts = [((*top, index), part) for index, part in enumerate(given)]
    else:
        message = f"names the models to profile; {_ADVICE}"
        raise _error([_mistake(path, tree.position(Finding(top, "")), top, message)])
    for where, part in parts:
        if isinstance(part, str):
            yield part, ({}, where)
            continue
        if not isinstance(part, dict):
            place = tree.position(Finding(where, ""))
            raise _error([_mistake(path, place, where, "the name of a model is expected")])
        for name, own in part.items():
            at = (*where, name)
            if own is not None and not isinstance(own, dict):
                place = tree.position(Finding(at, ""))
                raise _error([_mistake(path, place, at, "options are expected")])
            yield name, (own or {}, at)


def _refuse_unknown(path: Path, tree: Tree, models: Mapping[str, _Own]) -> None:
    unknown: list[tuple[Location, frozenset[str]]] = [
        ((option,), OPTIONS) for option in tree.data if option not in OPTIONS
    ]
    for own, at in models.values():
        unknown += [((*at, key), MODEL_OPTIONS) for key in own if key not in MODEL_OPTIONS]
    mistakes = []
    for where, known in unknown:
        near = in_brackets(str(where[-1]), known)
        position = tree.position(Finding(where, "", key=True))
        mistakes.append(_mistake(path, position, where, f"not an option of Model Analyzer{near}"))
    if mistakes:
        raise _error(mistakes)


def _chosen(path: Path, tree: Tree, models: Mapping[str, object], model: str | None) -> str:
    names = ", ".join(models)
    if model is None and len(models) == 1:
        return next(iter(models))
    position = tree.position(Finding(("profile_models",), "", key=True))
    at = f"{path}:{position.line}:{position.column}"
    if model is None:
        raise SpecError(
            f"{at}: several models are profiled: {names}",
            f"name one: tune init MODEL --from-model-analyzer {path}",
        )
    if model not in models:
        near = in_brackets(model, models)
        raise SpecError(f"{at}: {model} is not among the models: {names}{near}")
    return model


def _merged(
    everywhere: Mapping[str, Any], own: Mapping[str, Any], at: Location
) -> tuple[dict[str, Any], dict[str, Location]]:
    """A model's own options replace those of the whole file, one by one.

    The file's `batch_sizes`, `concurrency` and `request_rate` are `parameters` of a model.
    """
    values = {k: v for k, v in everywhere.items() if k != "profile_models"}
    places: dict[str, Location] = {k: (k,) for k in values}
    parameters = own.get("parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    if "request_rate" in parameters and "concurrency" not in parameters:
        values.pop("concurrency", None)
    for key, value in own.items():
        if key != "parameters" and value not in (None, {}, []):
            values[key], places[key] = value, (*at, key)
    for key in PARAMETERS:
        if key in parameters:
            values[key], places[key] = parameters[key], (*at, "parameters", key)
    return values, places


def numbers_between(start: int, stop: int, step: int) -> list[int]:
    """Both included; raises OverflowError when they are more than `MOST_NUMBERS`."""
    span = range(start, stop + 1, step)
    if (stop - start) // step >= MOST_NUMBERS:
        raise OverflowError(f"stands for more than {MOST_NUMBERS} numbers")
    return list(span)


def _numbers(value: Any) -> list[int]:
    if isinstance(value, dict):
        if not {"start", "stop"} <= value.keys() <= {"start", "stop", "step"}:
            raise ValueError
        return numbers_between(*(int(value.get(key, 1)) for key in ("start", "stop", "step")))
    items = value.split(",") if isinstance(value, str) else value
    items = items if isinstance(items, list) else [items]
    if any(isinstance(item, (bool, float)) for item in items):
        raise ValueError
    return [int(item) for item in items]


def _error(mistakes: list[Mistake]) -> SpecError:
    error = SpecMistakesError(mistakes)
    error.hint = _HINT
    return error


def _mistake(path: Path, at: Position, where: Location, message: str) -> Mistake:
    return Mistake(str(path), at.line, at.column, dotted(where), message)
