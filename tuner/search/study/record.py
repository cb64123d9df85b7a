"""The run as an Optuna study: what optuna-dashboard opens, and where workers join.

A record, not the source: `trials.jsonl` is, and what a kill left out of the study is added from
there. A trial's own number is in its attribute `trial`; Optuna's counts interrupted ones too.

Whoever measures a candidate **claims** it first: a trial in state RUNNING, written with its
attributes in one transaction, so that everybody sees all claims before its own. Of two claims on
one candidate the earlier one holds. A finished claim holds the whole trial. A worker that dies
leaves its claim behind, and nobody measures that candidate in this run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.score.trial import Trial, Worker
from tuner.search.deferred import optuna, quiet_optuna
from tuner.search.observation import FAILED_VIOLATION, observe
from tuner.search.study.handed_in import handed_in
from tuner.search.study.storage_url import hidden_reason, shown_url
from tuner.search.study.uninterrupted import uninterrupted
from tuner.space.adapter import distributions, params
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.objective import Goal, Objective

_VIOLATION = "violation"
_SPACE = "space"
#: Of a trial: who measures it, where that is a worker, and all of it once it is measured.
_WORKER, _RESULT = "worker", "result"
#: Writers of a SQLite file wait for each other so long.
_SQLITE_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Claim:
    """A candidate that somebody measures, or has measured, for the run.

    Attributes:
        by_worker: Not by the run itself.
        result: The trial as JSON once it is measured.
    """

    candidate_key: str
    by_worker: bool
    result: Mapping[str, Any] | None

    def trial(self, space: Space) -> Trial | None:
        """As whoever measured it numbered it.

        Raises:
            UnreadableFileError: It is none that the run can use, see `handed_in`.
        """
        if self.result is None:
            return None
        trial = handed_in(self.result, self.candidate_key, space)
        if self.by_worker and trial.worker is None:
            return replace(trial, worker=Worker("unknown", "unknown"))
        return trial


class StudyRecord:
    """An open study; closes its storage on leaving the context, and gives a worker's claim up.

    Args:
        storage: SQLAlchemy URL, ``sqlite:///DIRECTORY/study.db`` for a run of its own.
        name: The study's name.
        run: Run id; several runs may share a study.
        worker: Who writes, where that is not the run itself.

    Raises:
        EnvironmentNotReadyError: The storage cannot be opened.
        SpecError: The study belongs to another space or objective.
    """

    def __init__(
        self,
        storage: str,
        name: str,
        run: str,
        space: Space,
        objective: Objective,
        worker: Worker | None = None,
    ):
        self._run = run
        self._space = space
        self._goal = objective.goal
        self._worker = worker
        self._open: dict[str, int] = {}  # candidate to the id of its trial
        with quiet_optuna():
            self._storage = open_storage(storage)
            try:
                self._study = self._open_study(name, objective)
                self._id = self._storage.get_study_id_from_name(name)
            except BaseException:
                close_storage(self._storage)
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._worker is not None:
                for trial in self._open.values():
                    self._give_up(trial)
        finally:
            close_storage(self._storage)

    @uninterrupted()
    def resume(self, history: Sequence[Trial]) -> None:
        """Makes the study agree with the trials on disk after an interruption."""
        states = optuna.trial.TrialState
        mine = self._trials()
        with quiet_optuna():
            for left in mine:
                if left.state is states.RUNNING and _WORKER not in left.user_attrs:
                    self._study.tell(left.number, state=states.FAIL)
        finished = (t for t in mine if t.state in (states.COMPLETE, states.PRUNED))
        done = {t.user_attrs["candidate"] for t in finished}
        for trial in history:
            if trial.candidate.key not in done:
                self.finished(trial)

    @uninterrupted()
    def started(self, number: int, candidate: Candidate) -> bool:
        """A trial is about to be measured; False when somebody else claimed it before."""
        claim = self._claim(number, candidate, self._worker)
        given_up = optuna.trial.TrialState.FAIL
        first = min(
            t.number
            for t in self._trials()
            if t.user_attrs["candidate"] == candidate.key and t.state is not given_up
        )
        if first != self._storage.get_trial_number_from_id(claim):
            self._give_up(claim)
            return False
        self._open[candidate.key] = claim
        return True

    @uninterrupted()
    def finished(self, trial: Trial) -> None:
        """Records a trial's result; one that was never `started` is added whole."""
        trial = trial if self._worker is None else replace(trial, worker=self._worker)
        key = trial.candidate.key
        claim = self._open.get(key)
        if claim is None:
            claim = self._claim(trial.number, trial.candidate, trial.worker)
        seen = observe(trial, self._goal)
        facts: dict[str, Any] = {
            "state": trial.state.value,
            "feasible": trial.score is not None and trial.score.feasible,
            _VIOLATION: seen.violation,
            _RESULT: trial.to_json(),
        }
        if trial.reason is not None:
            facts["reason"] = trial.reason
        states = optuna.trial.TrialState
        state = states.PRUNED if seen.value is None else states.COMPLETE
        with quiet_optuna():
            for name, value in facts.items():
                self._storage.set_trial_user_attr(claim, name, value)
            self._study.tell(self._storage.get_trial_number_from_id(claim), seen.value, state)
        self._open.pop(key, None)

    @uninterrupted()
    def given_up(self, candidate: Candidate) -> None:
        """A `started` trial gave no result: its candidate is free again."""
        claim = self._open.pop(candidate.key, None)
        if claim is not None:
            self._give_up(claim)

    @uninterrupted()
    def claims(self) -> list[Claim]:
        """Everybody's on this run, oldest first; without those that were given up."""
        states = optuna.trial.TrialState
        return [
            Claim(
                t.user_attrs["candidate"],
                _WORKER in t.user_attrs,
                t.user_attrs.get(_RESULT) if t.state.is_finished() else None,
            )
            for t in self._trials()
            if t.state is not states.FAIL
        ]

    @uninterrupted()
    def open_to_workers(self, offer: Mapping[str, Any]) -> None:
        """The run searches; ``offer`` is what somebody needs to measure for it."""
        self._study.set_user_attr(offer_key(self._run), dict(offer))
        self._study.set_user_attr(searching_key(self._run), True)

    @uninterrupted()
    def close_to_workers(self) -> None:
        """The search is over."""
        self._study.set_user_attr(searching_key(self._run), False)

    @property
    @uninterrupted()
    def searching(self) -> bool:
        """The run still takes trials."""
        return bool(self._storage.get_study_user_attrs(self._id).get(searching_key(self._run)))

    def _trials(self) -> list[optuna.trial.FrozenTrial]:
        """Of this run, in the order of their claims."""
        with quiet_optuna():
            try:
                everything = self._study.get_trials(deepcopy=False)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                raise EnvironmentNotReadyError(
                    f"the study cannot be read: {type(error).__name__}: {error}",
                    "somebody else has written to its storage: use another one",
                ) from error
        own = (t for t in everything if t.user_attrs.get("run") == self._run)
        return [t for t in own if isinstance(t.user_attrs.get("candidate"), str)]

    def _claim(self, number: int, candidate: Candidate, worker: Worker | None) -> int:
        """The id of a new trial in state RUNNING. A worker's has no number: the run gives it."""
        values = params(self._space, candidate)
        known = distributions(self._space)
        who = {"trial": number} if worker is None else {_WORKER: asdict(worker)}
        claim = optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING,
            params=values,
            distributions={name: known[name] for name in values},
            user_attrs={
                "run": self._run,
                "candidate": candidate.key,
                "config": json.dumps(candidate.to_json(), sort_keys=True),
                **who,
            },
        )
        with quiet_optuna():
            made: int = self._storage.create_new_trial(self._id, template_trial=claim)
        return made

    def _give_up(self, claim: int) -> None:
        number = self._storage.get_trial_number_from_id(claim)
        with quiet_optuna():
            self._study.tell(number, state=optuna.trial.TrialState.FAIL)

    def _open_study(self, name: str, objective: Objective) -> optuna.Study:
        maximise = self._goal is Goal.MAXIMIZE_GOODPUT
        study = optuna.create_study(
            storage=self._storage,
            sampler=_recording_sampler(),
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


def offer_key(run: str) -> str:
    """The study's attribute that says what is needed to measure for a run."""
    return f"run {run}"


def searching_key(run: str) -> str:
    """The study's attribute that says whether a run takes trials."""
    return f"searching {run}"


def open_storage(url: str) -> optuna.storages.RDBStorage:
    """To be closed by `close_storage`.

    Raises:
        EnvironmentNotReadyError: It cannot be opened.
    """
    from sqlalchemy.exc import SQLAlchemyError

    patience = {"timeout": _SQLITE_PATIENCE_S} if url.startswith("sqlite") else {}
    try:
        return optuna.storages.RDBStorage(url, {"connect_args": patience})
    except (SQLAlchemyError, ImportError, RuntimeError, ValueError) as error:
        reason = hidden_reason(url, error)
        raise EnvironmentNotReadyError(
            f"cannot open the study's storage {shown_url(url)}: {reason}",
            "check the URL, e.g. sqlite:///study.db or postgresql://user@host/database",
        ) from None  # the cause may quote the password


def close_storage(storage: optuna.storages.RDBStorage) -> None:
    storage.remove_session()
    storage.engine.dispose()


def _recording_sampler() -> optuna.samplers.BaseSampler:
    """Never samples here; writes each told trial's constraint where Optuna's samplers look."""
    return optuna.samplers.TPESampler(
        constraints_func=lambda trial: (trial.user_attrs.get(_VIOLATION, FAILED_VIOLATION),)
    )
