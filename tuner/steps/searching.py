"""The search: one trial after the other, each on disk before the next begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from tuner.bench.bench import Bench
from tuner.bench.evaluate import Evaluation, LoadPlan, evaluate
from tuner.bench.levels import sustained_level
from tuner.errors import (
    LoadFailedError,
    ServerGoneError,
    TooManyFailedTrialsError,
    TrialError,
)
from tuner.run.timebook import Phase, TimeBook
from tuner.run.trial import Trial, TrialState, TrialTime
from tuner.search.budget import Budget, Progress, StopReason
from tuner.search.incumbent import incumbent, trials_since_best
from tuner.search.searcher import Searcher
from tuner.search.strategy import Enough, Proposal
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec
from tuner.steps.events import Events
from tuner.steps.looking import first_level

#: A trial whose server died is repeated this often in all.
ATTEMPTS = 2


class KeepsTrials(Protocol):
    def append_trial(self, trial: Trial) -> None: ...


@dataclass(frozen=True)
class Search:
    """Collaborators of a search.

    Attributes:
        store: Keeps each trial.
        checkpoint: Raises when the run is to stop.
        current: The config in the repository.
    """

    spec: Spec
    plan: LoadPlan
    bench: Bench
    searcher: Searcher
    store: KeepsTrials
    book: TimeBook
    events: Events
    checkpoint: Callable[[], None]
    current: Candidate


def searched(search: Search) -> tuple[list[Trial], StopReason]:
    """Runs trials until the budget says stop.

    Raises:
        TooManyFailedTrialsError: More trials failed than the budget allows.
        InterruptedRunError: The user stopped it.
    """
    budget = Budget.of(search.spec)
    goal = search.spec.objective.goal
    while True:
        history = search.searcher.history
        watch = _Watch(search.book)
        if outlook := search.searcher.outlook():
            search.events.note(outlook)
        with search.book.phase(Phase.SEARCHING):
            proposal = search.searcher.next()
        reason = budget(_progress(search, proposal))
        if reason is StopReason.TOO_MANY_FAILED:
            raise _too_many_failed(history)
        if reason is not None or not isinstance(proposal, Proposal):
            return history, reason or StopReason.EXHAUSTED
        search.checkpoint()
        if proposal.note is not None:
            search.events.note(proposal.note)
        with search.book.phase(Phase.SEARCHING):
            claimed = search.searcher.start(proposal.candidate)
        if not claimed:
            continue  # a worker was quicker
        search.events.trial_started(len(history), proposal.candidate, search.current)
        trial = _run_trial(search, len(history), proposal, watch)
        with search.book.phase(Phase.WRITING):
            search.store.append_trial(trial)
            search.searcher.tell(trial)
        best = incumbent(search.searcher.history, goal, search.current)
        search.events.trial_finished(trial, best)


def _progress(search: Search, proposal: Proposal | Enough | None) -> Progress:
    history = search.searcher.history
    return Progress(
        trials=len(history),
        failed=sum(t.state is TrialState.FAILED for t in history),
        since_best=trials_since_best(history, search.spec.objective.goal, search.current)
        if history
        else 0,
        elapsed_s=sum(_seconds(t.time) for t in history if t.worker is None),
        begun=any(t.candidate == search.current for t in history),
        exhausted=proposal is None,
        enough=isinstance(proposal, Enough),
    )


def _too_many_failed(history: Sequence[Trial]) -> TooManyFailedTrialsError:
    failed = [t for t in history if t.state is TrialState.FAILED]
    return TooManyFailedTrialsError(
        f"{len(failed)} of {len(history)} trials failed; the last one said: {failed[-1].reason}",
        "the report lists every reason; `tune doctor` checks the machine, and logs/server.log "
        "holds the server's own words",
    )


def _run_trial(search: Search, number: int, proposal: Proposal, watch: _Watch) -> Trial:
    """One trial; what goes wrong with it is its result, not the run's end.

    ``watch`` began when it was chosen, so that choosing counts against the budget.
    """
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    bare = Trial(
        number,
        proposal.candidate,
        TrialState.FAILED,
        started_at=started_at,
        predicted=proposal.predicted,
    )
    for attempt in range(1, ATTEMPTS + 1):
        bare = replace(bare, attempts=attempt)
        try:
            return _measured(search, bare, proposal.telling, watch)
        except ServerGoneError as error:
            bare = replace(bare, reason=error.message)
            search.events.note(f"trial {number}: {error.message}")
        except TrialError as error:
            search.bench.lost(error.message)
            bare = replace(bare, reason=error.message)
            break
    return replace(bare, time=watch.time())


def _measured(search: Search, bare: Trial, telling: bool, watch: _Watch) -> Trial:
    deployment = search.bench.deploy(bare.candidate)
    evaluation = _evaluated(search, telling)
    return replace(
        bare,
        state=evaluation.state,
        points=evaluation.points,
        score=evaluation.score,
        reason=None,
        deployment=deployment.kind.value,
        time=watch.time(),
    )


def _evaluated(search: Search, telling: bool) -> Evaluation:
    best = incumbent(search.searcher.history, search.spec.objective.goal, search.current)
    to_beat = None if best is None else sustained_level(best)
    if to_beat is not None:
        to_beat *= 1.0 + float(search.spec.confirm.min_gain)
    # One for all: configs and loads are compared under the same arrivals.
    seed = search.spec.search.seed * 1000 + 1

    def measured(start: float, to_beat: float | None) -> Evaluation:
        return evaluate(
            lambda level: search.bench.measure(level, seed),
            search.spec.objective,
            search.plan,
            start,
            to_beat,
            telling,
        )

    def first() -> float:
        return first_level(search.bench, search.plan, seed, search.events.note)

    if search.plan.listed:
        return measured(1.0, to_beat)
    if to_beat is None:
        return measured(first(), None)
    try:
        return measured(1.0, to_beat)
    except LoadFailedError as error:
        if not telling:
            raise
        # the load to beat may be so far beyond it that no result comes
        search.events.note(f"measured from below: {error.message}")
        return measured(first(), None)


class _Watch:
    """Seconds by phase since it was made."""

    def __init__(self, book: TimeBook) -> None:
        self._book = book
        self._before = book.to_json()

    def time(self) -> TrialTime:
        now = self._book.to_json()
        spent = {k: now[k] - self._before[k] for k in now}
        known = spent["searching_s"], spent["deploying_s"], spent["measuring_s"]
        return TrialTime(*known, max(0.0, spent["wall_s"] - sum(known)))


def _seconds(time: TrialTime) -> float:
    return time.searching_s + time.deploying_s + time.measuring_s + time.other_s
