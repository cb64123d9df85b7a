"""Generates the JSON Schema of a spec, and the tables of fields in `docs/spec.md`.

``python -m tuner.spec.reference docs/spec.md`` regenerates them; a test compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tuner.spec.fields import by_key, models_in
from tuner.spec.forms import CARRIED
from tuner.spec.model import Spec
from tuner.spec.slo import Objective, Slo
from tuner.spec.units import Bytes, Percent, Rate, Seconds
from tuner.spec.workload import Workload
from tuner.spec.yaml_tree import dump_scalar

_BEGIN = "<!-- fields: made by python -m tuner.spec.reference docs/spec.md -->"
_END = "<!-- end of fields -->"

_WORDS = {
    Seconds: "duration",
    Bytes: "size",
    Percent: "share",
    Rate: "rate",
    Slo: "SLO",
    Objective: "objective",
    Path: "path",
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
}
#: Keys of the short form, see `tuner.spec.forms`.
_SHORT = {
    "model": "the model that gets the requests: its directory in the repository",
    "space": "its space, and response_cache.size",
}
#: What only the long form needs.
_IN_LONG = [Spec.model_fields[name].annotation for name in ("models", "streams")]
#: Fields of the short form.
_ALSO: dict[type[BaseModel], tuple[str, ...]] = {
    Spec: (
        f"`model` (text): instead of streams: {_SHORT['model']}",
        f"`space` (mapping): instead of models: {_SHORT['space']}",
    ),
    Workload: ("`inputs`, `batch_size`: what the requests carry, as in `streams.NAME`",),
}
_ANY = {_WORDS[kind] for kind in (bool, int, float, str)}


def json_schema() -> dict[str, Any]:
    """The schema of a spec file for editors and other checkers, JSON Schema draft 2020-12.

    It accepts every spec that `load_spec` accepts. Rules between fields (a log range that starts
    at 0, a docker server without image) are not in the schema.
    """
    schema = Spec.model_json_schema(by_alias=True)
    parts = schema["$defs"]
    stream, properties = parts["StreamSpec"]["properties"], schema["properties"]
    parts["StreamSpec"]["required"] = []
    for key in CARRIED:
        parts["Workload"]["properties"][key] = stream[key]
    space = parts["ModelSpec"]["properties"]["space"]
    properties["model"] = {"type": "string", "minLength": 1, "description": _SHORT["model"]}
    properties["space"] = {**space, "description": _SHORT["space"]}
    schema["required"] = ["repository"]
    listed = properties["models"]["additionalProperties"]  # nothing is `{}` there
    properties["models"]["additionalProperties"] = {"anyOf": [listed, {"type": "null"}]}
    some = {"slo": {"minItems": 1}, "space": {"minProperties": 1}}
    schema["anyOf"] = [
        {"required": ["model", "slo", "space"], "properties": some},
        {"required": ["model", "models"]},
        {"required": ["model", "streams"]},
        {"required": ["models", "streams"]},
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Spec of a tune",
    }


def with_fields(document: str) -> str:
    """``document`` with the fields of each model, in the order of use, between its two marks."""
    head, _, rest = document.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    sections = dict.fromkeys(_section(model, where) for model, where in _models(Spec, ""))
    fields = "\n".join(sections)
    return f"{head}{_BEGIN}\n\n{fields}\n{_END}{tail}"


def _models(model: type[BaseModel], where: str) -> Iterator[tuple[type[BaseModel], str]]:
    yield model, where
    for name, info in model.model_fields.items():
        path = f"{where}.{info.alias or name}".removeprefix(".")
        path += ".NAME" if name in ("models", "streams") else ""
        for inner in models_in(info.annotation):
            yield from _models(inner, path)


def _section(model: type[BaseModel], where: str) -> str:
    kind = model.model_fields.get("kind")
    title = f"`{where}`" if where else "The file"
    if kind is not None:
        title += f" of kind `{get_args(kind.annotation)[0]}`"
    elif where.endswith("space"):
        title = f"`space`: values by `{next(iter(by_key(model)))}`"
    about = (model.__doc__ or "").replace("``", "`").split("\n\n")[0]
    fields = {key: info for key, info in by_key(model).items() if key not in ("kind", "name")}
    rows = [
        f"`{key}` ({'; '.join(filter(None, (_value(info.annotation), _default(info))))}): "
        f"{info.description}"
        for key, info in fields.items()
    ]
    rows_text = "".join(f"- {row}\n" for row in (*rows, *_ALSO.get(model, ())))
    return f"### {title}\n\n{' '.join(about.split())}\n" + (f"\n{rows_text}" if rows_text else "")


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required" if info.annotation not in _IN_LONG else "or `model`"
    value = info.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        kind = getattr(value, "kind", None)
        return f"default `{{kind: {kind}}}`" if kind else "see below"
    if value is None or value in ((), {}):
        return ""
    if isinstance(value, Enum):
        value = value.value
    plain = str(value) if isinstance(value, (Seconds, Bytes, Percent, Objective)) else value
    return f"default `{dump_scalar(list(plain) if isinstance(plain, tuple) else plain)}`"


def _value(annotation: Any) -> str:
    """A type in words, with the members of a union as alternatives."""
    if annotation in _WORDS:
        return _WORDS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    inner = [arg for arg in get_args(annotation) if arg not in (NoneType, Ellipsis)]
    if any(isinstance(arg, str) for arg in inner):
        return ", ".join(f"`{arg}`" for arg in inner)
    # what else is in an Annotated type is no type
    typed = [_value(arg) for arg in inner if isinstance(arg, type) or get_args(arg)]
    words = "value" if set(typed) >= _ANY else " or ".join(dict.fromkeys(typed))
    origin = getattr(annotation, "__origin__", None)
    if origin is tuple:
        return f"list of {words}" + "s" * (not words.endswith("`"))
    return "mapping" if origin is dict else words


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_fields(page.read_text()))
