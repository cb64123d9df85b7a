"""Recipes: named configs with which a search may begin, for every searched model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tuner.modelconfig.values import FieldValue
from tuner.space.candidate import Candidate
from tuner.space.parameters import Knob, Parameter
from tuner.space.space import Space
from tuner.spec.model import Recipe
from tuner.spec.paths import DYNAMIC_BATCHING, INSTANCES, MAX_BATCH_SIZE, is_instance_count

#: The values of each recipe; the space's nearest number by ratio counts. Source: an article on
#: instances of Triton's Python backend (2025-05-25), for a GPU of 16 GB and a model of 4 GB.
RECIPES: Mapping[Recipe, Mapping[str, int]] = {
    Recipe.MEMORY: {INSTANCES: 3, MAX_BATCH_SIZE: 8, DYNAMIC_BATCHING: True},
    Recipe.THROUGHPUT: {INSTANCES: 1, MAX_BATCH_SIZE: 16, DYNAMIC_BATCHING: True},
    Recipe.BALANCED: {INSTANCES: 2, MAX_BATCH_SIZE: 4, DYNAMIC_BATCHING: True},
}


def recipe_configs(recipes: Iterable[Recipe], space: Space) -> dict[Recipe, Candidate]:
    """The configs of recipes that are in the space, each once, without the current one."""
    left: dict[Candidate, Recipe] = {}
    for recipe in recipes:
        candidate = _candidate(RECIPES[recipe], space)
        valid = space.contains(candidate) and not space.violations(candidate)
        if valid and candidate not in (space.current, space.canonical(space.current)):
            left.setdefault(candidate, recipe)
    return {recipe: candidate for candidate, recipe in left.items()}


def _candidate(wanted: Mapping[str, int], space: Space) -> Candidate:
    chosen: dict[Knob, FieldValue] = {}
    for parameter in space.parameters:
        values = space.narrow(parameter, chosen)
        if values is not None and next(iter(values), values) is not values:
            now = space.current.values.get(parameter.knob)
            chosen[parameter.knob] = _value(values, wanted, now)
    return space.candidate(chosen)


def _value(values: Parameter, wanted: Mapping[str, int], now: FieldValue) -> FieldValue:
    goal = wanted.get(INSTANCES if is_instance_count(values.path) else values.path)
    numbers = [v for v in values if isinstance(v, int) and v > 0]
    if goal is not None and numbers:
        return min(numbers, key=lambda number: abs(math.log(number / goal)))
    return now if now in values else next(iter(values))
