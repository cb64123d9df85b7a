"""Optuna, imported at its first use, and what it is told about a trial.

- measured: the score; the sum of relative SLO overshoots is the constraint.
- pruned (lost to the incumbent at its load): a full trial with its bound made smaller by the
  overshoot, and no constraint. It may meet the SLOs at a lower load, so it is not infeasible,
  and how badly it lost says how far below the incumbent it is likely to be.
- failed: no value, and a constraint above every measured one. Optuna forgets trials in state
  FAIL and gives them no constraint (3.6.1, `_process_constraints_after_trial`), so the sampler
  would propose their neighbours again; in state PRUNED they count as the worst.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tuner.score.trial import Trial, TrialState
from tuner.space.adapter import distributions, params
from tuner.space.space import Space
from tuner.spec.slo import Goal


class _Deferred:
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("optuna"), name)


if TYPE_CHECKING:
    import optuna as optuna  # noqa: PLC0414
else:
    optuna = _Deferred()


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Only Optuna's errors are logged; other warnings than its own pass."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


#: Constraint of a failed trial: more than any sum of overshoots.
FAILED_VIOLATION = 1e6
#: Where Optuna 3.6.1 keeps a trial's constraints.
CONSTRAINTS = "constraints"


@dataclass(frozen=True)
class Observation:
    """``value`` is None for a failed trial; ``violation`` above 0 is infeasible."""

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
    """The trial as Optuna's samplers read it."""
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
