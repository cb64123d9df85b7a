"""Candidates as Optuna parameters and back, under the names the user wrote in the spec.

A parameter with listed values is a categorical of texts (`unset`, `off`, `8`, `4,8`); a range an
integer. A range with a special value is two parameters: `PATH.choice`, the special value or
`range`, and, only when that says `range`, `PATH` itself. What means nothing in a candidate is
not suggested for it, so the study's trials have different parameters (a conditional space).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tuner.space.candidate import Candidate, FieldValue
from tuner.space.parameters import ChoiceParameter, Knob, Parameter, RangeParameter
from tuner.space.space import Space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

#: What Optuna holds for a parameter here: the text of a choice, or a number.
OptunaValue = str | int

#: The other choice beside a special value.
IN_RANGE = "range"


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Optuna's distribution of every parameter, by Optuna's name."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    found: dict[str, BaseDistribution] = {}
    for parameter in space.parameters:
        if isinstance(parameter, ChoiceParameter):
            found[str(parameter.knob)] = CategoricalDistribution([text(v) for v in parameter])
            continue
        if parameter.special:
            texts = [text(parameter.special[0]), IN_RANGE]
            found[_choice_name(parameter)] = CategoricalDistribution(texts)
        found[str(parameter.knob)] = IntDistribution(
            parameter.low, parameter.high, log=parameter.log, step=parameter.step
        )
    return found


def suggest(space: Space, ask: Callable[[str], OptunaValue]) -> Candidate:
    """The candidate made by asking ``ask`` for each parameter by name, parents first.

    It may lie outside the space (no preferred size left below max_batch_size) or break one of
    Triton's rules: the caller asks `Space.contains` and `Space.violations`.
    """
    values: dict[Knob, FieldValue] = {}
    for parameter in space.parameters:
        narrowed = space.narrow(parameter, values)
        if narrowed is not None and narrowed.count == 1:
            values[parameter.knob] = next(iter(narrowed))
        elif narrowed is not None:
            values[parameter.knob] = _ask_value(parameter, ask)
    return space.candidate(values)


def params(space: Space, candidate: Candidate) -> dict[str, OptunaValue]:
    """Optuna's parameters of a candidate; empty when it lies outside the space.

    All or nothing: a few parameters without the others would make the sampler believe that they
    do not depend on each other.
    """
    candidate = space.canonical(candidate)
    if not space.contains(candidate):
        return {}
    found: dict[str, OptunaValue] = {}
    values = space.values(candidate)
    for parameter in space.parameters:
        if parameter.knob not in values:
            continue
        value = values[parameter.knob]
        if isinstance(parameter, ChoiceParameter):
            if value in parameter:
                found[str(parameter.knob)] = text(value)
            continue
        special = value in parameter.special
        if parameter.special:
            found[_choice_name(parameter)] = text(value) if special else IN_RANGE
        if not special:
            assert isinstance(value, int)
            found[str(parameter.knob)] = value
    return found


def text(value: FieldValue) -> str:
    """One text for each value of a parameter."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


def _choice_name(parameter: RangeParameter) -> str:
    return f"{parameter.knob}.choice"


def _ask_value(parameter: Parameter, ask: Callable[[str], OptunaValue]) -> FieldValue:
    if isinstance(parameter, ChoiceParameter):
        chosen = ask(str(parameter.knob))
        return next(v for v in parameter if text(v) == chosen)
    if parameter.special and ask(_choice_name(parameter)) != IN_RANGE:
        return parameter.special[0]
    return ask(str(parameter.knob))
