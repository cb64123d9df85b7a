"""pydantic's errors in the words and places of a spec file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tuner.hiding import HIDDEN
from tuner.spec.forms import CARRIED, SHORT_KEYS
from tuner.spec.mistakes import Finding, Location, closest, dotted, in_brackets
from tuner.spec.model import ModelSpec, Spec
from tuner.spec.paths import SEVERAL_REPOSITORIES
from tuner.spec.shapes import FORMS as SHAPE_FORMS
from tuner.spec.units import shorten
from tuner.spec.workload import Requests, Workload

_Models = tuple[type[BaseModel], ...]

#: Error type to text; the fields of ``ctx`` may be named.
_MESSAGES: Mapping[str, str] = {
    "int_type": "a whole number is expected, not {found}",
    "int_from_float": "a whole number is expected, not {found}",
    "float_type": "a number is expected, not {found}",
    "finite_number": "a finite number is expected, not {found}",
    "bool_type": "true or false is expected, not {found}",
    "tuple_type": "a list such as [{item}] is expected, not {found}",
    "dict_type": "a mapping is expected, not {found}",
    "model_type": "a mapping is expected, not {found}",
    "model_attributes_type": "a mapping such as {{kind: ...}} is expected, not {found}",
    "path_type": "a path is expected, not {found}",
    "greater_than": "must be above {gt:g}, not {found}",
    "greater_than_equal": "must be at least {ge:g}, not {found}",
    "less_than_equal": "must be at most {le:g}, not {found}",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "is not a variable's name",
}

_MAPPINGS = ("dict_type", "model_type", "model_attributes_type")
#: What may be written for each required key.
_LINES = {
    "models": "models: {NAME: {space: ...}}",
    "streams": "streams: {NAME: {model: ...}}",
    "repository": "repository: DIRECTORY",
    "name": "model: NAME",
    "model": "model: NAME",
    "file": "file: FILE",
    "share": "share: 50%",
    "dims": "dims: [64]",
    "length": "length: 10",
    "interval": "interval: 200ms",
    "int": "int: [1, 4]",
    "choice": "choice: [8, 16]",
    "subsets": "subsets: [4, 8]",
}
#: Where the value found is not shown.
_SECRET = ("server", "environment")
#: Keys that one might write for a stream, for things that are said elsewhere.
_EXCHANGES = ("kind", "sequences", "streaming")
_NOT_A_STREAMS = (
    "a stream says what it asks of which model; sequences are arrivals of kind sequences, and "
    "whether one request is answered many times is up to the model"
)
_SPACE_FORMS = "write {int: [1, 4]}, {choice: [8, 16]} or {subsets: [4, 8]}"


def findings(error: ValidationError) -> Iterator[Finding]:
    """One finding for each error, placed in the long form of what was validated."""
    for detail in error.errors(include_url=False):
        location, owners, models = _trace(detail["loc"])
        if location[:2] == _SECRET:
            detail["input"] = HIDDEN
        kind, context = detail["type"], detail.get("ctx", {})
        if kind == "too_short" and detail["input"]:
            continue  # pydantic does not count invalid items
        if kind == "extra_forbidden":
            yield _unknown_key(location, owners)
        elif kind == "union_tag_invalid":
            tag, tags = str(context["tag"]), context["expected_tags"]
            yield Finding((*location, "kind"), _not_one_of(tag, tags))
        elif kind == "union_tag_not_found" and location[-2:-1] != ("space",):
            yield Finding(location, "'kind' is missing: one of " + ", ".join(map(_tag, models)))
        elif kind == "missing":
            yield Finding(location, f"is missing: write {_LINES[str(location[-1])]}", absent=True)
        elif kind in _MAPPINGS:
            yield Finding(location, _message(detail), described=_described(location))
        else:
            yield Finding(location, _message(detail))


def _message(detail: ErrorDetails) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if detail["loc"] == ("repository",) and isinstance(value, list):
        return f"a path is expected, not a list; {SEVERAL_REPOSITORIES}"
    if kind in ("enum", "literal_error"):
        return _not_one_of(value, context["expected"])
    if kind == "union_tag_not_found":
        return _no_parameter(value)
    if kind == "string_type":
        quoted = f": put it in quotes, '{_found(value)}'" if _is_scalar(value) else ""
        return f"text is expected, not {_found(value)}{quoted}"
    if kind == "tuple_type" and not _is_scalar(value):
        return f"a list is expected, not {_found(value)}"
    if kind in _MESSAGES:
        found = _found(value)
        item = re.sub(r"^'([\d.]+)/s'$", r"\1", found)  # rates in lists are numbers
        return _MESSAGES[kind].format(found=found, item=item, **context)
    return detail["msg"]


def _no_parameter(value: Any) -> str:
    if isinstance(value, list):
        listed = ", ".join(_found(item).strip("'") for item in value)
        return f"is a bare list (did you mean {{choice: [{listed}]}}?); {_SPACE_FORMS}"
    if isinstance(value, dict) and value:
        guess = in_brackets(next(iter(value)), ["int", "choice", "subsets"])
        return f"has none of int, choice and subsets{guess}: {_SPACE_FORMS}"
    return f"values to try are expected, not {_found(value)}: {_SPACE_FORMS}"


def _not_one_of(value: Any, expected: str) -> str:
    options = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    return f"{_found(value)} is not one of {', '.join(options)}{in_brackets(str(value), options)}"


def _described(location: Location) -> str:
    """What the description of the part at ``location`` is called in `docs/spec.md`."""
    named = len(location) > 1 and location[0] in ("models", "streams")
    return dotted((location[0], "NAME", *location[2:]) if named else location) or "a spec"


def _unknown_key(location: Location, owners: _Models) -> Finding:
    key = str(location[-1])
    if location[0] == "streams" and len(location) == 3 and key in _EXCHANGES:
        return Finding(location, f"unknown key '{key}': {_NOT_A_STREAMS}", key=True)
    short = {Spec: SHORT_KEYS, Workload: CARRIED}  # what may be written there, in either form
    allowed = {(o, name) for o in owners for name in (*_names(o), *short.get(o, ()))}
    known = sorted({name for _, name in allowed - {(ModelSpec, "name")}})
    meant = closest(key, known)
    if meant:
        text = f"unknown key {shorten(key)} (did you mean {meant}?)"
        return Finding(location, text, key=True, meant=meant)
    homes = [home for home in _places_of_keys() if home[-1] == key]
    if homes:
        home = min(homes, key=lambda h: h[:1] != location[:1])
        text = f"'{key}' belongs under {dotted(home[:-1]) or 'the top'}, not here"
        return Finding(location, text, key=True)
    text = f"unknown key {shorten(key)}; known here: {', '.join(known)}"
    return Finding(location, text, key=True, described=_described(location[:-1]))


def _trace(loc: Location) -> tuple[Location, _Models, _Models]:
    """``loc`` without pydantic's tags of unions; the models that own its last key; those there."""
    plain: list[str | int] = []
    models: _Models = (Spec,)
    owners, is_name = models, False
    for part in loc:
        if part in SHAPE_FORMS and not is_name:
            continue
        tagged = tuple(model for model in models if _tag(model) == part)
        if len(models) > 1 and tagged and not is_name:
            models = tagged
            continue
        plain.append(part)
        owners = models
        models, is_name = (models, False) if is_name else _below(models, part)
    return tuple(plain), owners, models


def _below(models: _Models, part: str | int) -> tuple[_Models, bool]:
    """The models a field may hold, and whether the next key is one of the user's own.

    An index stays among the models.
    """
    owning = [model for model in models if part in _names(model)]
    if not owning:
        return models, False
    annotation = _names(owning[0])[str(part)]
    return models_in(annotation), get_origin(annotation) is dict


@cache
def _names(model: type[BaseModel]) -> Mapping[str, Any]:
    """The keys of a model as written, with their types."""
    fields = model.model_fields.items()
    return {field.alias or name: field.annotation for name, field in fields}


def models_in(annotation: Any) -> tuple[type[BaseModel], ...]:
    """The models that a field of this type may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(model for inner in get_args(annotation) for model in models_in(inner))


def _tag(model: type[BaseModel]) -> str:
    """What pydantic calls the model inside a union: its kind, or its name for parameters."""
    kind = _names(model).get("kind")
    return str(get_args(kind)[0]) if kind else model.__name__


@cache
def _places_of_keys() -> tuple[Location, ...]:
    """Every key of a spec, from the top, with everything that may be under it; short ones first."""

    def walk(model: type[BaseModel], above: Location) -> Iterator[Location]:
        for name, annotation in _names(model).items():
            yield (*above, name)
            if name != "space":
                free = ("NAME",) if get_origin(annotation) is dict else ()
                for inner in models_in(annotation):
                    yield from walk(inner, (*above, name, *free))

    short = [(name,) for name in SHORT_KEYS]
    carried = walk(Requests, ("workload",))
    return tuple(sorted([*short, *carried, *walk(Spec, ())], key=len))


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))


def _found(value: Any) -> str:
    """A value as the spec writes it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return shorten(value)
    if isinstance(value, (list, tuple)):
        return "a list"
    return "a mapping" if isinstance(value, dict) else str(value)
