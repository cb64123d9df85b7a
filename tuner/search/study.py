"""The run as an Optuna study, which optuna-dashboard opens: `study.db`.

When the run begins and after each trial, new trials are added to the study; `tune` never reads them
back. The attribute `trial` has the trial's number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.machine.uninterrupted import uninterrupted
from tuner.score.trial import Trial
from tuner.search.optuna_trial import distributions, frozen_trial, observe, optuna, quiet_optuna
from tuner.sentences import sentence
from tuner.space.space import Space
from tuner.spec.slo import Goal, Objective

#: Seconds to wait while another process writes the file.
_PATIENCE_S = 60.0


class StudyRecord:
    """An open study; the file is closed at the end of the context.

    Args:
        path: The path of the SQLite file.
        run: The run's identifier.

    Raises:
        EnvironmentNotReadyError: The file cannot be opened.
        SpecError: The study is of another space or objective.
    """

    def __init__(self, path: Path, name: str, run: str, space: Space, objective: Objective):
        self._run = run
        self._space = space
        self._goal = objective.goal
        with quiet_optuna():
            self._storage = _open_storage(path)
            try:
                self._study = self._open_study(name, objective)
            except BaseException:
                self._close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def write(self, trials: Sequence[Trial]) -> None:
        """Adds the trials that are not in the study yet."""
        with uninterrupted(), quiet_optuna():
            states = optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED
            finished = self._study.get_trials(deepcopy=False, states=states)
            known = {t.user_attrs.get("trial") for t in finished}
            for trial in trials:
                if trial.number not in known:
                    self._study.add_trial(self._frozen(trial))

    def _frozen(self, trial: Trial) -> optuna.trial.FrozenTrial:
        frozen = frozen_trial(self._space, self._goal, trial)
        frozen.user_attrs = {
            "run": self._run,
            "trial": trial.number,
            "candidate": trial.candidate.key,
            "config": json.dumps(trial.candidate.to_json(), sort_keys=True),
            "state": trial.state.value,
            "feasible": trial.score is not None and trial.score.feasible,
            "violation": observe(trial, self._goal).violation,
        }
        if trial.reason is not None:
            frozen.user_attrs["reason"] = sentence(trial.reason)
        frozen.datetime_complete = datetime.now()
        frozen.datetime_start = frozen.datetime_complete - timedelta(seconds=trial.time.total_s)
        return frozen

    def _open_study(self, name: str, objective: Objective) -> optuna.Study:
        maximise = self._goal is Goal.MAXIMIZE_GOODPUT
        study = optuna.create_study(
            storage=self._storage,
            study_name=name,
            direction="maximize" if maximise else "minimize",
            load_if_exists=True,
        )
        facts: Mapping[str, Any] = {
            "objective": objective.expression,
            "space": {k: repr(d) for k, d in distributions(self._space).items()},
        }
        for key, value in facts.items():
            if study.user_attrs.setdefault(key, value) != value:
                raise SpecError(
                    f"the study {name} was made with another {key}",
                    "use another --output, or the spec that the study began with",
                )
            study.set_user_attr(key, value)
        return study

    def _close(self) -> None:
        self._storage.remove_session()
        self._storage.engine.dispose()


def _open_storage(path: Path) -> optuna.storages.RDBStorage:
    from sqlalchemy.exc import SQLAlchemyError

    waits = {"connect_args": {"timeout": _PATIENCE_S}}
    try:
        return optuna.storages.RDBStorage(f"sqlite:///{path}", waits)
    except (SQLAlchemyError, RuntimeError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise EnvironmentNotReadyError(
            f"cannot open the study {path}: {reason}",
            "free some space, make its directory writable, or name another with --output",
        ) from None
