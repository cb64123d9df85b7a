"""Optuna, imported at its first use: candidates as Optuna's parameters, trials as its trials.

A parameter with listed values is a categorical of texts (`unset`, `off`, `8`, `4,8`); a range an
integer. A range with a special value is two parameters: `PATH.choice`, the special value or
`range`, and, only for `range`, `PATH` itself. Parameters without an effect in a candidate are left
out, so the study's trials have different parameters (a conditional space).

How Optuna receives a trial:

- measured: the score; the sum of relative SLO overshoots is the constraint.
- pruned (lost to the incumbent at its load): a complete trial whose value is the bound divided by
  one plus the overshoot, without a constraint. The trial may meet the SLOs at a lower load, so it
  is not infeasible, and the overshoot indicates how far below the incumbent that load is.
- failed: no value, and a constraint above every measured one. Optuna forgets trials in state
  FAIL and gives them no constraint (3.6.1, `_process_constraints_after_trial`), so the sampler
  would propose their neighbours again; in state PRUNED they count as the worst.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.extras import Deferred
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate, FieldValue
from tuner.space.parameters import ChoiceParameter, Knob, Parameter, RangeParameter, text
from tuner.space.space import Space
from tuner.spec.slo import Goal

if TYPE_CHECKING:
    import optuna as optuna  # noqa: PLC0414
else:
    optuna = Deferred("optuna")


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Within the context, Optuna logs errors only; warnings of other libraries pass."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


#: Constraint of a failed trial: above any sum of overshoots.
FAILED_VIOLATION = 1e6
#: Where Optuna 3.6.1 keeps a trial's constraints.
CONSTRAINTS = "constraints"


@dataclass(frozen=True)
class Observation:
    """A trial for Optuna: ``value``, None if it failed; ``violation``, above 0 if infeasible."""

    value: float | None
    violation: float


def observe(trial: Trial, goal: Goal) -> Observation:
    score = trial.score
    if trial.state is TrialState.FAILED or score is None:
        return Observation(None, FAILED_VIOLATION)
    if trial.state is TrialState.MEASURED:
        return Observation(score.value, 0.0 if score.feasible else max(score.violation, 1e-9))
    overshoot = 1.0 + max(score.violation, 0.0)
    bound = score.value
    return Observation(bound / overshoot if goal is Goal.MAXIMIZE_GOODPUT else bound * overshoot, 0)


def frozen_trial(space: Space, goal: Goal, trial: Trial) -> optuna.trial.FrozenTrial:
    """The trial in the form that Optuna's samplers read."""
    seen = observe(trial, goal)
    values = params(space, trial.candidate)
    known = distributions(space)
    states = optuna.trial.TrialState
    return optuna.trial.create_trial(
        state=states.PRUNED if seen.value is None else states.COMPLETE,
        value=seen.value,
        params=values,
        distributions={name: known[name] for name in values},
        system_attrs={CONSTRAINTS: (seen.violation,)},
    )


#: A value of one of Optuna's parameters: the text of a choice, or a number.
OptunaValue = str | int

#: The other choice beside a special value.
IN_RANGE = "range"


def distributions(space: Space) -> dict[str, optuna.distributions.BaseDistribution]:
    """Optuna's distribution of every parameter, by Optuna's name."""
    by_name: dict[str, optuna.distributions.BaseDistribution] = {}
    categorical = optuna.distributions.CategoricalDistribution
    for parameter in space.parameters:
        if isinstance(parameter, ChoiceParameter):
            by_name[str(parameter.knob)] = categorical([text(v) for v in parameter])
            continue
        if parameter.special:
            texts = [text(parameter.special[0]), IN_RANGE]
            by_name[_choice_name(parameter)] = categorical(texts)
        by_name[str(parameter.knob)] = optuna.distributions.IntDistribution(
            parameter.low, parameter.high, log=parameter.log, step=parameter.step
        )
    return by_name


def suggest(space: Space, ask: Callable[[str], OptunaValue]) -> Candidate:
    """The candidate with the values that ``ask`` gives for each parameter by name, parents first.

    The candidate may be outside the space (no preferred size is left below max_batch_size) or break
    one of Triton's rules: the caller must check `Space.contains` and `Space.violations`.
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
    """Optuna's parameters of a candidate; empty where the candidate is outside the space.

    With only some of the parameters, the sampler would treat these as independent of the others.
    """
    candidate = space.canonical(candidate)
    if not space.contains(candidate):
        return {}
    by_name: dict[str, OptunaValue] = {}
    values = space.values(candidate)
    for parameter in space.parameters:
        if parameter.knob not in values:
            continue
        value = values[parameter.knob]
        if isinstance(parameter, ChoiceParameter):
            if value in parameter:
                by_name[str(parameter.knob)] = text(value)
            continue
        special = value in parameter.special
        if parameter.special:
            by_name[_choice_name(parameter)] = text(value) if special else IN_RANGE
        if not special:
            assert isinstance(value, int)
            by_name[str(parameter.knob)] = value
    return by_name


def _choice_name(parameter: RangeParameter) -> str:
    return f"{parameter.knob}.choice"


def _ask_value(parameter: Parameter, ask: Callable[[str], OptunaValue]) -> FieldValue:
    if isinstance(parameter, ChoiceParameter):
        chosen = ask(str(parameter.knob))
        return next(v for v in parameter if text(v) == chosen)
    if parameter.special and ask(_choice_name(parameter)) != IN_RANGE:
        return parameter.special[0]
    return ask(str(parameter.knob))
