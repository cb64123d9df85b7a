"""The run as an Optuna study: what optuna-dashboard opens, and where workers join.

Trials are written into it from `trials.jsonl` after each of them; only claims live in the study
alone. A trial's own number is in its attribute `trial`; Optuna's counts interrupted ones too.

Whoever measures a candidate **claims** it first: a trial in state RUNNING, written with its
attributes in one transaction, so that everybody sees all claims before its own. Of two claims on
one candidate the earlier one holds. A finished claim holds the whole trial. A worker that dies
leaves its claim behind, and nobody measures that candidate in this run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.run.reading import read_received
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState, Worker
from tuner.search.optuna_trial import (
    CONSTRAINTS,
    distributions,
    observe,
    optuna,
    params,
    quiet_optuna,
)
from tuner.search.study.storage_url import hidden_reason, shown_url
from tuner.search.study.uninterrupted import uninterrupted
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.slo import Goal, Objective

_SPACE = "space"
#: Attributes of a study's trial: the worker that measures it, and the finished trial as JSON.
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
        """The finished trial with its worker's number; None while it is measured.

        Who may write to the storage can forge it. What it says it measured cannot be checked, and
        need not be: nothing is written that the run has not measured itself.

        Raises:
            UnreadableFileError: It is no trial, of another candidate than the claimed one, outside
                the space, or without the measurements that its state needs.
        """
        if self.result is None:
            return None

        def checked(data: Mapping[str, Any]) -> Trial:
            trial = Trial.from_json(dict(data))
            if reason := _refusal(trial, self.candidate_key, space):
                raise ValueError(reason)
            return trial

        what = f"the trial handed in for {self.candidate_key}"
        trial = read_received(what, self.result, checked)
        if self.by_worker and trial.worker is None:
            return replace(trial, worker=Worker("unknown", "unknown"))
        return trial


class StudyRecord:
    """An open study; closes its storage on leaving the context, and gives a worker's claim up.

    Args:
        storage: SQLAlchemy URL, ``sqlite:///DIRECTORY/study.db`` for a run of its own.
        run: Run id; several runs may share a study.

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
            for claim in self._open.values() if self._worker is not None else ():
                self._end(claim, optuna.trial.TrialState.FAIL)
        finally:
            close_storage(self._storage)

    @uninterrupted()
    def resume(self, history: Sequence[Trial]) -> None:
        """Ends the claims that an interruption of the run left behind, and writes its trials."""
        states = optuna.trial.TrialState
        for left in self._trials():
            if left.state is states.RUNNING and _WORKER not in left.user_attrs:
                self._study.tell(left.number, state=states.FAIL)
        self.write(history)

    @uninterrupted()
    def started(self, number: int, candidate: Candidate) -> bool:
        """A trial is about to be measured; False when somebody else claimed it before."""
        states = optuna.trial.TrialState
        claim = self._claim(number, candidate, self._worker)
        claims = [t for t in self._trials() if t.state is not states.FAIL]
        first = min(t.number for t in claims if t.user_attrs["candidate"] == candidate.key)
        if first != self._storage.get_trial_number_from_id(claim):
            self._end(claim, states.FAIL)
            return False
        self._open[candidate.key] = claim
        return True

    @uninterrupted()
    def write(self, trials: Sequence[Trial]) -> None:
        """Adds those finished trials that are not in the study yet, and ends their claims."""
        states = optuna.trial.TrialState
        finished = (t for t in self._trials() if t.state in (states.COMPLETE, states.PRUNED))
        done = {t.user_attrs["candidate"] for t in finished} - self._open.keys()
        for trial in trials:
            if trial.candidate.key in done:
                continue
            own = trial if self._worker is None else replace(trial, worker=self._worker)
            claim = self._open.get(own.candidate.key)
            if claim is None:
                claim = self._claim(own.number, own.candidate, own.worker)
            self._finish(claim, own)
            self._open.pop(own.candidate.key, None)

    @uninterrupted()
    def given_up(self, candidate: Candidate) -> None:
        """A `started` trial gave no result: its candidate is free again."""
        claim = self._open.pop(candidate.key, None)
        if claim is not None:
            self._end(claim, optuna.trial.TrialState.FAIL)

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
        """The trials of this run, in the order of their claims."""
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

    def _finish(self, claim: int, trial: Trial) -> None:
        seen = observe(trial, self._goal)
        facts: dict[str, Any] = {
            "state": trial.state.value,
            "feasible": trial.score is not None and trial.score.feasible,
            "violation": seen.violation,
            _RESULT: trial.to_json(),
        }
        if trial.reason is not None:
            facts["reason"] = trial.reason
        for name, value in facts.items():
            self._storage.set_trial_user_attr(claim, name, value)
        self._storage.set_trial_system_attr(claim, CONSTRAINTS, [seen.violation])
        states = optuna.trial.TrialState
        self._end(claim, states.PRUNED if seen.value is None else states.COMPLETE, seen.value)

    def _end(self, claim: int, state: optuna.trial.TrialState, value: float | None = None) -> None:
        with quiet_optuna():
            self._storage.set_trial_state_values(claim, state, None if value is None else [value])

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


def _refusal(trial: Trial, candidate_key: str, space: Space) -> str:
    if trial.candidate.key != candidate_key:
        return "it is of a config other than the one claimed"
    if trial.candidate != space.current and not space.contains(trial.candidate):
        return "its config is not in the space"
    if (trial.score is None) != (trial.state is TrialState.FAILED):
        return "it is neither failed nor measured"
    best = None if trial.score is None else trial.score.best_point
    if best is not None and not 0 <= best < len(trial.points):
        return f"score.best_point is {best} of {len(trial.points)} points"
    return "" if all(map(_could_be, trial.points)) else "a measurement has impossible values"


def _could_be(point: Point) -> bool:
    m = point.measurement
    figures = (m.throughput_infer_per_s, m.p50_latency_us, m.p99_latency_us, m.wall_s)
    positive = m.load.level > 0 and m.duration_s > 0 and m.batch_size > 0
    return positive and bool(point.slo) and all(math.isfinite(f) and f >= 0 for f in figures)
