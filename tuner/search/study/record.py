"""The run as an Optuna study: what optuna-dashboard opens, and where workers join.

Trials are written into it from `trials.jsonl` after each of them; only claims live in the study
alone. A trial's own number is in its attribute `trial`; Optuna's counts interrupted ones too.

Whoever measures a candidate **claims** it first: a trial in state RUNNING, written with its
attributes in one transaction, so that everybody sees all claims before its own. Of two claims on
one candidate the earlier one holds. A finished claim holds the whole trial. The claim of a worker
that dies, or is cut off for long, is freed (`leases.py`). If such a worker comes back with a
result, it must claim the candidate again, so there are never two results for one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.record.earlier import with_reasons
from tuner.record.reading import read_received
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
from tuner.search.study.leases import WORKER, Leases
from tuner.search.study.storage import Reconnection, close_storage, open_storage
from tuner.search.study.uninterrupted import uninterrupted
from tuner.sentences import sentence
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.slo import Goal, Objective
from tuner.spec.units import count_text

_SPACE = "space"
#: Fact about a run: whether it takes trials.
SEARCHING = "searching"
#: Attribute of a study's trial: the finished trial as JSON.
_RESULT = "result"
_P = ParamSpec("_P")
_T = TypeVar("_T")


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
            trial = Trial.from_json(with_reasons(data))
            if reason := _refusal(trial, self.candidate_key, space):
                raise ValueError(reason)
            return trial

        what = f"the trial handed in for {self.candidate_key}"
        trial = read_received(what, self.result, checked)
        if self.by_worker and trial.worker is None:
            return replace(trial, worker=Worker("unknown", "unknown"))
        return trial


def _transaction(
    method: Callable[Concatenate[StudyRecord, _P], _T],
) -> Callable[Concatenate[StudyRecord, _P], _T]:
    """No signal interrupts it; while the database is out of reach it is tried again.

    So it must do no harm when it is done twice: the answer to the first time may have been lost.
    """

    @wraps(method)
    def tried(record: StudyRecord, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        while True:
            try:
                with uninterrupted():
                    done = method(record, *args, **kwargs)
            except optuna.exceptions.StorageInternalError as error:
                if not record.reconnection.wait(error):
                    raise
            else:
                record.reconnection.reached()
                return done

    return tried


class StudyRecord:
    """An open study; closes its storage on leaving the context, and gives a worker's claim up.

    Args:
        storage: SQLAlchemy URL, ``sqlite:///DIRECTORY/study.db`` for a run of its own.
        run: Run id; several runs may share a study.
        note: Receives a sentence when the storage is out of reach, or a dead worker's claim free.

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
        note: Callable[[str], None] = lambda _: None,
    ):
        self.reconnection = Reconnection(storage, note)
        self._note = note
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
        self._leased = {} if worker is None else self._open
        self._leases = Leases(self._storage, self._id, run, self._leased)

    def __enter__(self) -> Self:
        self._leases.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leases.end()
        try:
            with suppress(optuna.exceptions.StorageInternalError):  # others free it in a while
                for claim in self._leased.values():
                    self._free(claim)
        finally:
            close_storage(self._storage)

    @_transaction
    def resume(self, history: Sequence[Trial]) -> None:
        """Ends the claims that an interruption of the run left behind, and writes its trials."""
        states = optuna.trial.TrialState
        for left in self._trials():
            if left.state is states.RUNNING and WORKER not in left.user_attrs:
                self._study.tell(left.number, state=states.FAIL)
        self._write(history)

    @_transaction
    def started(self, number: int, candidate: Candidate) -> bool:
        """A trial is about to be measured; False when somebody else claimed it before."""
        return self._started(number, candidate)

    def _started(self, number: int, candidate: Candidate) -> bool:
        states = optuna.trial.TrialState
        claim = self._claim(number, candidate, self._worker)
        claims = [t for t in self._trials() if t.state is not states.FAIL]
        first = min(t.number for t in claims if t.user_attrs["candidate"] == candidate.key)
        if first != self._storage.get_trial_number_from_id(claim):
            self._free(claim)
            return False
        self._open[candidate.key] = claim
        return True

    @_transaction
    def write(self, trials: Sequence[Trial]) -> None:
        """Adds those of the run's trials that are not in the study yet, and ends their claims."""
        self._write(trials)

    def _write(self, trials: Sequence[Trial]) -> None:
        states = optuna.trial.TrialState
        finished = (t for t in self._trials() if t.state in (states.COMPLETE, states.PRUNED))
        done = {t.user_attrs["candidate"] for t in finished} - self._open.keys()
        for trial in trials:
            if trial.candidate.key in done:
                continue
            claim = self._open.get(trial.candidate.key)
            if claim is None:
                claim = self._claim(trial.number, trial.candidate, trial.worker)
            self._finish(claim, trial)
            self._open.pop(trial.candidate.key, None)

    @_transaction
    def hand_in(self, trial: Trial) -> bool:
        """A worker's finished trial; False where somebody else has its candidate by now."""
        own = replace(trial, worker=self._worker)
        key = own.candidate.key
        if key in self._open and not self._finish(self._open[key], own):
            del self._open[key]  # it was freed: this worker was cut off
        if key not in self._open:
            if not self._started(own.number, own.candidate):
                return False
            self._finish(self._open[key], own)
        del self._open[key]
        return True

    @_transaction
    def given_up(self, candidate: Candidate) -> None:
        """A `started` trial gave no result: its candidate is free again."""
        if candidate.key in self._open:
            self._free(self._open[candidate.key])
            del self._open[candidate.key]

    @_transaction
    def claims(self) -> list[Claim]:
        """Everybody's on this run, oldest first; without those that were given up."""
        states = optuna.trial.TrialState
        while self._leases.freed:
            by = self._leases.freed.pop()
            self._note(f"no sign any more of the worker on {by}: its config is free again")
        return [
            Claim(
                t.user_attrs["candidate"],
                WORKER in t.user_attrs,
                t.user_attrs.get(_RESULT) if t.state.is_finished() else None,
            )
            for t in self._trials()
            if t.state is not states.FAIL
        ]

    def open_to_workers(self, offer: Mapping[str, Any]) -> None:
        """The run searches; ``offer`` is what somebody needs to measure for it."""
        self.set_fact("run", dict(offer))
        self.set_fact(SEARCHING, True)

    def close_to_workers(self) -> None:
        """The search is over, so claims no longer matter."""
        self._leases.end()
        self.set_fact(SEARCHING, False)

    @property
    def searching(self) -> bool:
        """The run still takes trials."""
        return bool(self.fact(SEARCHING))

    @_transaction
    def fact(self, name: str) -> Any:
        """What the run, or a worker, has noted for all who measure for this run."""
        return self._storage.get_study_user_attrs(self._id).get(fact_key(name, self._run))

    @_transaction
    def set_fact(self, name: str, value: object) -> None:
        self._study.set_user_attr(fact_key(name, self._run), value)

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
        who = {"trial": number} if worker is None else {WORKER: asdict(worker)}
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

    def _finish(self, claim: int, trial: Trial) -> bool:
        """Stores the trial; False where its claim was freed before."""
        try:
            self._store(claim, trial)
        except RuntimeError:  # Optuna's, of a claim that has ended
            state = self._storage.get_trial(claim).state
            if not state.is_finished():
                raise
            return state is not optuna.trial.TrialState.FAIL
        return True

    def _store(self, claim: int, trial: Trial) -> None:
        seen = observe(trial, self._goal)
        facts: dict[str, Any] = {
            "state": trial.state.value,
            "feasible": trial.score is not None and trial.score.feasible,
            "violation": seen.violation,
            _RESULT: trial.to_json(),
        }
        if trial.reason is not None:
            facts["reason"] = sentence(trial.reason)
        for name, value in facts.items():
            self._storage.set_trial_user_attr(claim, name, value)
        self._storage.set_trial_system_attr(claim, CONSTRAINTS, [seen.violation])
        states = optuna.trial.TrialState
        self._end(claim, states.PRUNED if seen.value is None else states.COMPLETE, seen.value)

    def _free(self, claim: int) -> None:
        with suppress(RuntimeError):  # it was freed before
            self._end(claim, optuna.trial.TrialState.FAIL)

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


def fact_key(name: str, run: str) -> str:
    """The study's attribute that holds a fact about one of its runs."""
    return f"{name} {run}"


def _refusal(trial: Trial, candidate_key: str, space: Space) -> str:
    if trial.candidate.key != candidate_key:
        return "it is of a config other than the one claimed"
    if trial.candidate != space.current and not space.contains(trial.candidate):
        return "its config is not in the space"
    if (trial.score is None) != (trial.state is TrialState.FAILED):
        return "it is neither failed nor measured"
    best = None if trial.score is None else trial.score.best_point
    if best is not None and not 0 <= best < len(trial.points):
        return f"score.best_point is {best} of {count_text(len(trial.points), 'point')}"
    return "" if all(map(_could_be, trial.points)) else "a measurement has impossible values"


def _could_be(point: Point) -> bool:
    m = point.measurement
    figures = (m.throughput_infer_per_s, m.p50_latency_us, m.p99_latency_us, m.wall_s)
    positive = m.load.level > 0 and m.duration_s > 0 and m.batch_size > 0
    return positive and bool(point.slo) and all(math.isfinite(f) and f >= 0 for f in figures)
