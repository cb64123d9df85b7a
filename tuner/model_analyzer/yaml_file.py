"""Reads Model Analyzer's YAML, without Model Analyzer: the options that hold for one model.

The format is that of `model-analyzer profile -f FILE`, release 1.58.0 (its docs/config.md).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from tuner.errors import SpecError
from tuner.plain import plain
from tuner.spec.forms import SHORT_KEYS
from tuner.spec.mistakes import (
    Finding,
    Location,
    Mistake,
    SpecMistakesError,
    dotted,
    in_brackets,
    listed,
)
from tuner.spec.model import Spec
from tuner.spec.yaml_tree import (
    MANIFEST,
    MANIFEST_HINT,
    BadYamlError,
    Position,
    Tree,
    is_manifest,
    mistake_at,
    read_yaml_file,
)

_T = TypeVar("_T")
#: Models by name, each with its own options and its place; and with what is no name, why.
_Models = dict[str, tuple[dict[str, Any], Location]]
_Named = tuple[_Models, list[tuple[Location, str]]]
_TOP = "profile_models"
#: Whether all models are loaded, and asked, at the same time.
CONCURRENTLY = "run_config_profile_models_concurrently_enable"
#: What it was called in 2021, and by the command `analyze` until 2022.
_OLD = ("model_names", "analysis_models")
#: Objectives and constraints of the models, in files that `profile` and `analyze` shared.
_ANALYSED = "analysis_models"
#: What the command `report` reads: its options for results of `profile`.
_OF_REPORT = "report_model_configs"
_GIVE_PROFILE = "give the YAML of model-analyzer profile itself, with its profile_models"
_HINT = "docs/model-analyzer.md says what is taken over from Model Analyzer's YAML"
_NO_TOKENS = "tune measures no tokens; NVIDIA's aiperf does"
#: Where a spec says what an option says that is not taken over, or why it does not.
_ELSEWHERE = {
    "client_protocol": "write workload.protocol",
    "genai_perf_flags": _NO_TOKENS,
    "gpus": "write server.gpus",
    "triton_docker_image": "tune init --image IMAGE takes it",
    "triton_docker_mounts": "write server.mounts",
    "triton_docker_shm_size": "write server.shm_size",
    "triton_server_environment": "write server.environment",
    "triton_server_flags": "write server.args",
}
#: The same of an option with one of its values.
_ELSEWHERE_OF = {
    ("model_type", "LLM"): _NO_TOKENS,
    ("triton_launch_mode", "remote"): "tune init --server HOST takes the running server",
}
_KINDS = {str: "text", int: "a whole number", dict: "a mapping of names to values"}

_MERGE = "<<"
#: Of its files of results.
_RESULTS = (".csv", ".ckpt")
#: Most numbers that one option may expand to.
MOST_NUMBERS = 10_000


@dataclass
class Profile:
    """What a YAML says for one model. Options are taken as they are used; the rest is listed.

    Attributes:
        others: Models of the same file.
        places: Where each of the ``values`` stands.
    """

    path: Path
    model: str
    others: tuple[str, ...]
    tree: Tree
    values: Mapping[str, Any]
    places: Mapping[str, Location]
    _taken: set[str] = field(default_factory=set)
    _left: list[tuple[int, str]] = field(default_factory=list)

    def take(self, option: str, kind: type[_T]) -> _T | None:
        """The option's value, None when it is not given."""
        self._taken.add(option)
        value = self.values.get(option)
        if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
            return value
        raise self.mistake((option,), f"{_KINDS.get(kind, 'another value')} is expected")

    def take_numbers(self, option: str) -> list[int]:
        """A list, ``1,2,4``, or ``{start: 1, stop: 8, step: 1}``; ascending, each once."""
        value = self.take(option, object)
        try:
            return [] if value is None else sorted(set(_numbers(value)))
        except OverflowError as error:
            raise self.mistake((option,), str(error)) from None
        except (ValueError, TypeError, KeyError):
            text = "whole numbers are expected: a list, or {start: 1, stop: 8, step: 1}"
            raise self.mistake((option,), text) from None

    def without(self, option: str) -> Profile:
        """The same, with an option that is not listed any more."""
        self._taken.add(option)
        return self

    def take_models(self, option: str) -> _Models:
        """Names, with options or without; what is none is left."""
        models, wrong = _models(self.take(option, object), (option,))
        for where, text in wrong:
            self.leave(where, text)
        return models

    def leave(self, where: Location, reason: str = "") -> None:
        """Lists what is not taken over; ``where`` begins with an option."""
        line = self.tree.position(Finding(self._place(where), "", key=True)).line
        text = f"{dotted(where)} (line {line})" if where[0] in self.places else dotted(where)
        entry = (line, plain(f"{text}: {reason}" if reason else text))
        if entry not in self._left:
            self._left.append(entry)

    def refuse_without_use(self) -> None:
        """SpecError where nothing was taken of the file: it is another one, or holds this one."""
        if self.values.keys().isdisjoint(self._taken):
            where = next(iter(self.places.values()), (_TOP,))
            text = f"nothing here has a place in a spec: {listed(self.values) or 'it is empty'}"
            error = _mistake(self.path, self.tree, where, text)
            error.hint = _GIVE_PROFILE
            raise error

    @property
    def left(self) -> tuple[str, ...]:
        """What is not taken over, by line: what was left, and every option that was not taken."""
        for option in self.values.keys() - self._taken:
            self.leave((option,), _elsewhere(option, self.values[option]))
            self._taken.add(option)
        return tuple(text for _, text in sorted(self._left))

    def mistake(self, where: Location, message: str) -> SpecError:
        return _mistake(self.path, self.tree, self._place(where), message, where=where)

    def _place(self, where: Location) -> Location:
        return (*self.places.get(str(where[0]), where[:1]), *where[1:])


def _elsewhere(option: str, value: Any) -> str:
    return _ELSEWHERE.get(option) or _ELSEWHERE_OF.get((option, str(value)), "")


def read_profiles(path: Path, model: str | None) -> list[Profile]:
    """The options of a model; without a name, of all that are profiled at the same time.

    Raises:
        SpecError: As `read_profile`.
    """
    tree = _tree(path)
    models, wrong = _models(*_top(tree))
    together = tree.data.get(CONCURRENTLY) is True
    if model is None and together and len(models) > 1 and not wrong:
        profiles = [read_profile(path, name) for name in models]
        return [replace(profile.without(CONCURRENTLY), others=()) for profile in profiles]
    profile = read_profile(path, model)
    if together and profile.others:
        profile.without(CONCURRENTLY).leave(
            (CONCURRENTLY,), "leave MODEL out for one spec of all models"
        )
    return [profile]


def _top(tree: Tree) -> tuple[Any, Location]:
    """What the file says of its models, and where."""
    top = _TOP if _TOP in tree.data else next((old for old in _OLD if old in tree.data), _TOP)
    return tree.data.get(top), (top,)


def read_profile(path: Path, model: str | None) -> Profile:
    """The options of a model; without a name, of the only one in the file.

    A model's own options replace those of the whole file, one by one. A file that names none is
    about any.

    Raises:
        SpecError: The file cannot be read, is not one of Model Analyzer's, or does not say which
            model; the message has ``file:line:column``.
    """
    tree = _tree(path)
    models, _ = named = _models(*_top(tree))
    name = _chosen(path, tree, named, model)
    analysed, _ = _models(tree.data.get(_ANALYSED), (_ANALYSED,))
    values = {str(k): v for k, v in tree.data.items()}
    places: dict[str, Location] = {str(k): (k,) for k in tree.data}
    for given, at in (analysed.get(name, ({}, ())), models.get(name, ({}, ()))):
        options, placed = given, {key: (*at, key) for key in given}
        parameters = options.get("parameters")
        if isinstance(parameters, dict):
            placed |= {key: (*at, "parameters", key) for key in parameters}
            options = {**options, **parameters, "parameters": None}
        for key, value in options.items():
            if value not in (None, {}, []):
                values[str(key)], places[str(key)] = value, placed[key]
    profile = Profile(path, name, tuple(n for n in models if n != name), tree, values, places)
    profile.take_models(str(_top(tree)[1][0]))
    return profile.without(_ANALYSED) if name in analysed else profile


def _tree(path: Path) -> Tree:
    try:
        _, tree = read_yaml_file(path)
    except BadYamlError as error:
        raise _error(mistake_at(path, error.position, error.message)) from error
    mistakes = [mistake_at(path, at, text, where) for at, where, text in tree.problems]
    if not isinstance(tree.data, dict):
        text = "a mapping of options to values is expected"
        if path.suffix in _RESULTS:
            text += "; Model Analyzer's results choose the first configs: search: {first: FILE}"
        mistakes.append(mistake_at(path, Position(1, 1), text))
    if mistakes:
        raise _error(*mistakes)
    if not {_TOP, *_OLD} & tree.data.keys():
        _refuse_other(path, tree)
    return replace(tree, data=_with_merges(tree.data))


def _with_merges(given: Any) -> Any:
    """The data with the keys of each mapping that ``<<`` names, as Model Analyzer reads them."""
    if isinstance(given, list):
        return [_with_merges(one) for one in given]
    if not isinstance(given, dict):
        return given
    others = given.get(_MERGE)
    others = others if isinstance(others, list) else [others]
    if not all(isinstance(other, dict) for other in others):
        others = []
    rest = {key: value for key, value in given.items() if key != _MERGE or not others}
    merged = {key: value for other in reversed(others) for key, value in other.items()}
    return {key: _with_merges(value) for key, value in {**merged, **rest}.items()}


def _refuse_other(path: Path, tree: Tree) -> None:
    """Refuses a spec, a manifest of Kubernetes, and what belongs to another command."""
    if flags := [key for key in tree.data if key.replace("-", "_") in (_TOP, *_OLD)]:
        name = flags[0].replace("-", "_")
        text = f"this is an option of the command line: the YAML has {name}, each with _ for -"
        raise _mistake(path, tree, (flags[0],), text)
    ours = [key for key in tree.data if key in SHORT_KEYS or key in Spec.model_fields]
    if ours:
        error = _mistake(
            path, tree, (ours[0],), "this is a spec of tune, no YAML of Model Analyzer"
        )
        name = shlex.quote(str(path))
        error.hint = f"it needs no draft: tune plan {name}   then   tune run {name}"
        raise error
    if is_manifest(tree.data):
        error = _mistake(path, tree, ("kind",), MANIFEST)
        error.hint = MANIFEST_HINT
        raise error
    if _OF_REPORT in tree.data:
        text = "this is the YAML of model-analyzer report, which measures nothing"
        error = _mistake(path, tree, (_OF_REPORT,), text)
        error.hint = _GIVE_PROFILE
        raise error


def _models(given: Any, top: Location) -> _Named:
    """What is at ``top``: names, a mapping, or a mixture."""
    if isinstance(given, str):
        given = [name.strip() for name in given.split(",")]
    parts = [(top, given)] if given is not None else []
    if isinstance(given, list):
        parts = [((*top, index), part) for index, part in enumerate(given)]
    by_name, wrong = _Models(), list[tuple[Location, str]]()
    for where, part in parts:
        for name, options in part.items() if isinstance(part, dict) else [(part, None)]:
            at = (*where, name) if isinstance(part, dict) else where
            if isinstance(name, str | int) and name != "*" and isinstance(options or {}, dict):
                by_name[str(name)] = (dict(options or {}), at)
            else:
                text = f"{name}: {options}" if isinstance(part, dict) else name
                wrong.append((at, f"names are wanted, with options or without; `{text}` is none"))
    return by_name, wrong


def _chosen(path: Path, tree: Tree, named: _Named, model: str | None) -> str:
    models, wrong = named
    if model is not None and (model in models or wrong or not models):
        return model
    if model is None and len(models) == 1 and not wrong:
        return next(iter(models))
    where: Location = (_TOP,)
    text = "names the models to profile, each with its options"
    if model is not None:
        text = f"{model} is not among the models: {listed(models)}{in_brackets(model, models)}"
    elif wrong:
        where, text = wrong[0]
    elif models:
        text = f"several models are profiled: {listed(models)}"
    error = _mistake(path, tree, where, text)
    if model is None:
        error.hint = f"name one: tune init MODEL --from-model-analyzer {shlex.quote(str(path))}"
    raise error


def _numbers(value: Any) -> list[int]:
    if isinstance(value, dict):
        if not {"start", "stop"} <= value.keys() <= {"start", "stop", "step"}:
            raise ValueError
        start, stop, step = (int(value.get(key, 1)) for key in ("start", "stop", "step"))
        numbers = range(start, stop + 1, step)
        if numbers[MOST_NUMBERS:]:
            raise OverflowError(f"stands for more than {MOST_NUMBERS} numbers")
        return list(numbers)
    items = value.split(",") if isinstance(value, str) else value
    items = items if isinstance(items, list) else [items]
    if any(isinstance(item, (bool, float)) for item in items):
        raise ValueError
    return [int(item) for item in items]


def _mistake(
    path: Path, tree: Tree, place: Location, message: str, where: Location | None = None
) -> SpecError:
    at = tree.position(Finding(place, "", key=True))
    return _error(mistake_at(path, at, message, where or place))


def _error(*mistakes: Mistake) -> SpecError:
    error = SpecMistakesError(mistakes)
    error.hint = _HINT
    return error
