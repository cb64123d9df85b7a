"""The run as an Optuna study: what optuna-dashboard opens and what other tools may read.

A record, not the source: `trials.jsonl` is, and what a kill left out of the study is added from
there. A trial's own number stands in its attribute `trial`; Optuna's counts interrupted ones too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.run.trial import Trial
from tuner.search.observation import FAILED_VIOLATION, observe
from tuner.search.quiet import quiet_optuna
from tuner.space.adapter import distributions, params
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.objective import Goal, Objective

if TYPE_CHECKING:
    import optuna

_VIOLATION = "violation"
_SPACE = "space"


class StudyRecord:
    """An open study; closes its storage on leaving the context.

    Args:
        storage: SQLAlchemy URL, ``sqlite:///DIRECTORY/study.db`` for a run of its own.
        name: The study's name.
        run: Run id; several runs may share a study.

    Raises:
        EnvironmentNotReadyError: The storage cannot be opened.
        SpecError: The study belongs to another space or objective.
    """

    def __init__(self, storage: str, name: str, run: str, space: Space, objective: Objective):
        self._run = run
        self._space = space
        self._goal = objective.goal
        self._asked: dict[int, optuna.trial.Trial] = {}
        with quiet_optuna():
            self._storage = _open_storage(storage)
            self._sampler = _recording_sampler()
            try:
                self._study = self._open_study(name, objective)
            except BaseException:
                self._close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    def resume(self, history: Sequence[Trial]) -> None:
        """Makes the study agree with the trials on disk after an interruption."""
        import optuna

        states = optuna.trial.TrialState
        with quiet_optuna():
            mine = [t for t in self._study.get_trials() if t.user_attrs.get("run") == self._run]
            for left in (t for t in mine if t.state is states.RUNNING):
                self._study.tell(left.number, state=states.FAIL)
        done = {t.user_attrs["trial"] for t in mine if t.state in (states.COMPLETE, states.PRUNED)}
        for trial in history:
            if trial.number not in done:
                self.finished(trial)

    def started(self, number: int, candidate: Candidate) -> None:
        """A trial is about to be measured."""
        import optuna

        values = params(self._space, candidate)
        known = distributions(self._space)
        with quiet_optuna():
            self._study.sampler = optuna.samplers.PartialFixedSampler(values, self._sampler)
            asked = self._study.ask({name: known[name] for name in values})
            asked.set_user_attr("run", self._run)
            asked.set_user_attr("trial", number)
            asked.set_user_attr("candidate", candidate.key)
            asked.set_user_attr("config", json.dumps(candidate.to_json(), sort_keys=True))
        self._asked[number] = asked

    def finished(self, trial: Trial) -> None:
        """A trial's result; one that was never `started` is added whole."""
        import optuna

        if trial.number not in self._asked:
            self.started(trial.number, trial.candidate)
        asked = self._asked.pop(trial.number)
        seen = observe(trial, self._goal)
        with quiet_optuna():
            asked.set_user_attr("state", trial.state.value)
            asked.set_user_attr("feasible", trial.score is not None and trial.score.feasible)
            asked.set_user_attr(_VIOLATION, seen.violation)
            if trial.reason is not None:
                asked.set_user_attr("reason", trial.reason)
            states = optuna.trial.TrialState
            state = states.PRUNED if seen.value is None else states.COMPLETE
            self._study.tell(asked, seen.value, state)

    def _open_study(self, name: str, objective: Objective) -> optuna.Study:
        import optuna

        maximise = self._goal is Goal.MAXIMIZE_GOODPUT
        study = optuna.create_study(
            storage=self._storage,
            sampler=self._sampler,
            study_name=name,
            direction="maximize" if maximise else "minimize",
            load_if_exists=True,
        )
        facts: Mapping[str, Any] = {
            "objective": objective.expression,
            _SPACE: {k: repr(d) for k, d in distributions(self._space).items()},
        }
        for key, value in facts.items():
            if study.user_attrs.setdefault(key, value) != value:
                raise SpecError(
                    f"the study {name} was made with another {key}",
                    "use another --storage or --output, or the spec that the study began with",
                )
            study.set_user_attr(key, value)
        return study

    def _close(self) -> None:
        self._storage.remove_session()
        self._storage.engine.dispose()


def _open_storage(url: str) -> optuna.storages.RDBStorage:
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return optuna.storages.RDBStorage(url)
    except (SQLAlchemyError, ImportError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise EnvironmentNotReadyError(
            f"cannot open the study's storage {url}: {reason}",
            "check the URL, e.g. sqlite:///study.db or postgresql://user@host/database",
        ) from error


def _recording_sampler() -> optuna.samplers.BaseSampler:
    """Never samples here; writes each told trial's constraint where Optuna's samplers look."""
    import optuna

    return optuna.samplers.TPESampler(
        constraints_func=lambda trial: (trial.user_attrs.get(_VIOLATION, FAILED_VIOLATION),)
    )
