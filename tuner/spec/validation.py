"""Validates a spec part by part: every mistake is reported, and valid values remain.

Each model in the data is validated separately, the innermost first. So a mistake has a place, and
only its field becomes unknown: the rules of `tuner.spec.checks` apply to all other fields.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from tuner.spec.explain import explained
from tuner.spec.fields import Unknown, by_key, models_in
from tuner.spec.mistakes import Finding, Location
from tuner.spec.shapes import FORMS as SHAPE_FORMS
from tuner.spec.slo import Slo

_Model = TypeVar("_Model", bound=BaseModel)


class Validation:
    """Validates models, and collects the mistakes.

    Attributes:
        findings: The mistakes so far, with places from the top of the data.
    """

    def __init__(self, context: Mapping[str, Any]) -> None:
        self.findings: list[Finding] = []
        self._context = dict(context)

    def model(self, model: type[_Model], data: Mapping[str, Any], at: Location = ()) -> _Model:
        """The data at a place as a model; fields with a mistake are unknown."""
        fields = by_key(model)
        values = {
            key: self._built(fields[key].annotation, value, (*at, key)) if key in fields else value
            for key, value in data.items()
        }
        try:
            return model.model_validate(values, context=self._context)
        except ValidationError as error:
            wrong: list[Location] = []
            for detail in error.errors(include_url=False):
                # pydantic also names the form of a shape
                place = tuple(part for part in detail["loc"] if part not in SHAPE_FORMS)
                wrong.append(place)
                if finding := explained(model, (*at, *place), detail):
                    self.findings.append(finding)
                    wrong.append((finding.meant,))
            return self._rest(model, values, wrong)

    def _built(self, annotation: Any, value: Any, at: Location) -> Any:
        """The value with its models as instances; data that fit no model remain unchanged."""
        models = models_in(annotation)
        if isinstance(value, list) and models:
            return [self._built(annotation, item, (*at, n)) for n, item in enumerate(value)]
        if not isinstance(value, dict) or not models:
            return value
        if get_origin(annotation) is dict:
            _, item = get_args(annotation)
            return {key: self._built(item, inner, (*at, key)) for key, inner in value.items()}
        chosen = models if len(models) == 1 else [m for m in models if _is_for(m, value)]
        return self.model(chosen[0], value, at) if chosen else value

    def _rest(
        self, model: type[_Model], values: Mapping[str, Any], wrong: Collection[Location]
    ) -> _Model:
        """An instance in which fields with a mistake are unknown."""
        fields = model.model_fields.items()
        rest = model.model_construct({n for n, info in fields if (info.alias or n) in values})
        for name, info in fields:
            key = info.alias or name
            items = [place[1:2] for place in wrong if place[:1] == (key,)]
            if key in values or items:
                rest.__dict__.pop(name, None)
            if key in values and () not in items:
                known = self._known(model, name, values[key], [item for (item,) in items])
                rest.__dict__ |= {} if isinstance(known, Unknown) else {name: known}
        return rest

    def _known(
        self, model: type[BaseModel], name: str, value: Any, wrong: Collection[str | int]
    ) -> Any:
        """The value of a field, with `Unknown` for each of its items that is wrong."""
        adapter = _adapter(model, name)
        try:
            if not wrong:
                return adapter.validate_python(value, context=self._context)
            if isinstance(value, dict):
                items = {key: item for key, item in value.items() if key not in wrong}
                right = adapter.validate_python(items, context=self._context)
                return {key: right.get(key, Unknown()) for key in value}
            if get_args(model.model_fields[name].annotation)[:1] in ((str,), (Slo,)):
                listed = [item for n, item in enumerate(value) if n not in wrong]
                valid = iter(adapter.validate_python(listed, context=self._context))
                return tuple(Unknown() if n in wrong else next(valid) for n in range(len(value)))
        except ValidationError:  # too few are left
            pass
        return Unknown()


def _is_for(model: type[BaseModel], data: Mapping[str, Any]) -> bool:
    """Whether the data fit this model of a union, by the kind, or by the model's first key."""
    key, info = next(iter(by_key(model).items()))
    return key in data and (key != "kind" or data[key] in get_args(info.annotation))


@cache
def _adapter(model: type[BaseModel], name: str) -> TypeAdapter[Any]:
    info = model.model_fields[name]
    annotated: Any = Annotated[(info.annotation, *info.metadata, None)]  # one is needed
    return TypeAdapter(annotated)
