"""The search: one trial after the other, each on disk before the next begins."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from tuner.bench.evaluate import Evaluation, LoadPlan, SecondChance, evaluate
from tuner.bench.levels import sustained_level
from tuner.bench.protocol import Bench
from tuner.bench.stepping import below_sent
from tuner.errors import (
    ClientLimitError,
    DeployRefusedError,
    LoadFailedError,
    ModelFailsError,
    OutOfTimeError,
    ServerGoneError,
    TooManyFailedTrialsError,
    TrialError,
)
from tuner.load import seeds
from tuner.run.timebook import Phase, TimeBook
from tuner.run.trial import Trial, TrialState, TrialTime
from tuner.score.judge import tightest_latency
from tuner.score.point import Point
from tuner.search.budget import Budget, Progress, StopReason
from tuner.search.incumbent import NEAR_MISS, incumbent, trials_since_best
from tuner.search.reach import out_of_reach
from tuner.search.searcher import Searcher
from tuner.search.strategy import Proposal
from tuner.space.candidate import Candidate
from tuner.spec.digits import digits
from tuner.spec.model import Spec
from tuner.steps.events import Events
from tuner.steps.lengths import length_s, long_windows, minutes, most_probes, refuse_too_slow
from tuner.steps.looking import first_level
from tuner.triton.log import out_of_memory

#: A trial whose server died is repeated this often in all.
ATTEMPTS = 2


class CurrentConfigFailsError(TooManyFailedTrialsError):
    """The config in the repository gives no measurement: there is nothing to compare with."""


class KeepsTrials(Protocol):
    def append_trial(self, trial: Trial) -> None: ...


@dataclass(frozen=True)
class Search:
    """Collaborators of a search.

    Attributes:
        store: Keeps each trial.
        checkpoint: Raises when the run is to stop.
        current: The config in the repository.
        load_s: What loading the model took before the search; the time of the budget counts it.
        takes: About how long the run takes, in words, at so many requests per second.
        near_miss: Stress up to which an SLO may be missed by noise alone.
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
    load_s: float = 0.0
    takes: Callable[[float], str] = lambda _: ""
    near_miss: float = NEAR_MISS


def searched(search: Search) -> tuple[list[Trial], StopReason]:
    """Runs trials until the budget says stop.

    Raises:
        TooManyFailedTrialsError: More trials failed than the budget allows.
        InterruptedRunError: The user stopped it.
    """
    budget = Budget.of(search.spec)
    goal = search.spec.objective.goal
    clock = _Clock(search.load_s + _spent_s(search.searcher.history), budget.time_s)
    while True:
        history = search.searcher.history
        _refuse_unmeasurable(search, history)
        watch = _Watch(search.book)
        if reason := _over(search, budget, clock):
            return history, reason
        if outlook := search.searcher.outlook():
            search.events.note(outlook)
        with search.book.phase(Phase.SEARCHING):
            proposal = search.searcher.next()
        if reason := _over(search, budget, clock):  # workers may have finished something
            return history, reason
        if not isinstance(proposal, Proposal):
            return history, StopReason.EXHAUSTED if proposal is None else StopReason.ENOUGH
        search.checkpoint()
        if proposal.note is not None:
            search.events.note(proposal.note)
        with search.book.phase(Phase.SEARCHING):
            claimed = search.searcher.start(proposal.candidate)
        if not claimed:
            continue  # a worker was quicker
        search.events.trial_started(len(history), proposal.candidate, search.current)
        trial = _run_trial(search, len(history), proposal, watch, clock)
        if trial is None:
            _given_up(search, proposal.candidate, len(history))
            continue
        with search.book.phase(Phase.WRITING):
            search.store.append_trial(trial)
            search.searcher.tell(trial)
        best = incumbent(search.searcher.history, goal, search.current)
        search.events.trial_finished(trial, best)


def _over(search: Search, budget: Budget, clock: _Clock) -> StopReason | None:
    """Why the search is over, by the budget; None while it goes on."""
    history = search.searcher.history
    goal, current = search.spec.objective.goal, search.current
    reason = budget(
        Progress(
            trials=len(history),
            failed=sum(t.state is TrialState.FAILED for t in history),
            since_best=trials_since_best(history, goal, current) if history else 0,
            elapsed_s=clock.elapsed_s(),
            begun=any(t.candidate == current for t in history),
            out_of_reach=out_of_reach(history, search.spec.slo, search.plan),
        )
    )
    if reason is StopReason.TOO_MANY_FAILED:
        raise _too_many_failed(history)
    return reason


def _refuse_unmeasurable(search: Search, history: Sequence[Trial]) -> None:
    """Without the current config there is nothing to compare with, and its failure is the news."""
    for trial in history:
        if trial.candidate == search.current and trial.state is TrialState.FAILED:
            raise CurrentConfigFailsError(
                f"the current config of {search.spec.model} cannot be measured: {trial.reason}",
                "mend what is named there, then start again; the server's own words are in the "
                "run's logs/server.log",
            )


def _given_up(search: Search, candidate: Candidate, number: int) -> None:
    """A trial for which the time of the budget did not suffice leaves nothing behind."""
    if candidate == search.current:
        raise CurrentConfigFailsError(
            "the time of the budget was used up before the current config gave a result",
            "raise budget.time, or shorten workload.window",
        )
    search.searcher.give_up(candidate)
    search.events.note(f"trial {number} is given up: the time of the budget is used up")


def _too_many_failed(history: Sequence[Trial]) -> TooManyFailedTrialsError:
    failed = [t for t in history if t.state is TrialState.FAILED]
    return TooManyFailedTrialsError(
        f"{len(failed)} of {len(history)} trials failed; the last one said: {failed[-1].reason}",
        "the report lists every reason; `tune doctor` checks the machine, and logs/server.log "
        "holds the server's own words",
    )


def _run_trial(
    search: Search, number: int, proposal: Proposal, watch: _Watch, clock: _Clock
) -> Trial | None:
    """One trial; what goes wrong with it is its result, not the run's end.

    ``watch`` began when it was chosen, so that choosing counts against the budget. None where the
    time was used up before it gave a result.
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
            return _measured(search, bare, proposal.telling, watch, clock)
        except OutOfTimeError as error:
            search.bench.lost(error.message)
            return None
        except ServerGoneError as error:
            bare = replace(bare, reason=error.message, refused=_asks_too_much(error))
            search.events.note(f"trial {number}: {error.message}")
        except TrialError as error:
            search.bench.lost(error.message)
            bare = replace(bare, reason=error.message, refused=_asks_too_much(error))
            break
    return replace(bare, time=watch.time())


def _asks_too_much(error: TrialError) -> bool:
    """Whether a config that asks for more of the machine would fail too."""
    return isinstance(error, DeployRefusedError) or out_of_memory(error.message)


def _measured(search: Search, bare: Trial, telling: bool, watch: _Watch, clock: _Clock) -> Trial:
    deployment = search.bench.deploy(bare.candidate)
    evaluation = _Evaluating(search, bare.candidate, telling, clock)()
    if evaluation.limit is not None:
        search.events.note(f"trial {bare.number} is not measured further: {evaluation.limit}")
    return replace(
        bare,
        state=evaluation.state,
        points=evaluation.points,
        score=evaluation.score,
        reason=None,
        refused=False,
        deployment=deployment.kind.value,
        time=watch.time(),
        limit=evaluation.limit,
    )


class _Evaluating:
    """The measurements of one trial."""

    def __init__(self, search: Search, candidate: Candidate, telling: bool, clock: _Clock) -> None:
        self._search = search
        self._telling = telling
        self._clock = clock
        # One for all: configs and loads are compared under the same arrivals. Only a near miss is
        # measured under others, since it may be those that it met badly.
        self._seed = seeds.of_search(search.spec.search.seed)
        #: Of the current config one measurement is made in any case: what it is compared with.
        self._owed = candidate == search.current

    def __call__(self) -> Evaluation:
        search = self._search
        best = incumbent(search.searcher.history, search.spec.objective.goal, search.current)
        to_beat = None if best is None else sustained_level(best)
        if search.plan.listed:
            return self._evaluated(search.plan, 1.0, None)
        if best is None or to_beat is None:
            return self._from_first()
        second = SecondChance(search.near_miss, partial(self._under_other_arrivals, to_beat))
        gain, rate_to_beat = 1.0 + float(search.spec.confirm.min_gain), None
        if search.plan.arrivals.open_loop:
            to_beat *= gain
        elif best.score is not None:
            rate_to_beat = best.score.value * gain
        try:
            return self._evaluated(search.plan, 1.0, to_beat, second, rate_to_beat)
        except ModelFailsError:
            raise
        except ClientLimitError as error:
            # no more than the incumbent's load can be sent
            return self._evaluated(search.plan, below_sent(error, to_beat), None)
        except LoadFailedError as error:
            # the load to beat may be so far beyond it that no result comes
            search.events.note(f"measured from below: {error.message}")
            return self._from_first()

    def _from_first(self) -> Evaluation:
        self._refuse_when_late()
        search = self._search
        bound = tightest_latency(search.spec.slo)
        first = first_level(search.bench, search.plan, self._seed, search.events.note, bound)
        plan = search.plan
        refuse_too_slow(search.spec, plan, first)
        if plan.arrivals.open_loop:
            self._tell_length(plan.levels.nearest(first.level))
        if first.lowest:
            lowest = plan.levels.nearest(first.level)
            plan = replace(plan, levels=replace(plan.levels, lowest=lowest))
        return self._evaluated(plan, first.level, None)

    def _tell_length(self, rate_per_s: float) -> None:
        """Before the first long window, once: how long windows are, and the run."""
        search = self._search
        told = long_windows(search.spec, rate_per_s) if self._owed else ""
        if told:
            search.events.note("; ".join(filter(None, (told, search.takes(rate_per_s)))))

    def _evaluated(
        self,
        plan: LoadPlan,
        start: float,
        to_beat: float | None,
        second: SecondChance | None = None,
        rate_to_beat: float | None = None,
    ) -> Evaluation:
        objective, telling = self._search.spec.objective, self._telling
        return evaluate(
            self._measure,
            objective,
            plan,
            start,
            to_beat,
            telling,
            second,
            rate_to_beat=rate_to_beat,
            at_most=most_probes(self._search.spec, plan, start if to_beat is None else to_beat),
        )

    def _measure(self, level: float) -> Point:
        return self._measured(level, self._seed)

    def _under_other_arrivals(self, level: float) -> Point:
        return self._measured(level, seeds.of_near_miss(self._search.spec.search.seed))

    def _measured(self, level: float, seed: int) -> Point:
        self._refuse_when_late(level)
        point = self._search.bench.measure(level, seed)
        self._owed = False
        return point

    def _refuse_when_late(self, level: float | None = None) -> None:
        """Whether there is time for a measurement, of this level where it is known."""
        needs_s = 0.0 if level is None else length_s(self._search.spec, self._search.plan, level)
        if not self._owed and self._clock.left_s() <= needs_s:
            raise OutOfTimeError("the time of the budget is used up")
        whole_s = self._clock.time_s
        if self._owed and whole_s is not None and needs_s > whole_s:
            raise LoadFailedError(
                f"one measurement at {digits(level or 0.0, 3)}/s takes {minutes(needs_s)}, and "
                f"budget.time is {minutes(whole_s)}: raise it, or ask for a lower percentile"
            )


class _Clock:
    """The time of the budget; ``spent_s``: on the first load, and by an earlier part of the run."""

    def __init__(self, spent_s: float, time_s: float | None) -> None:
        self._from_s = time.monotonic() - spent_s
        self.time_s = time_s

    def elapsed_s(self) -> float:
        return time.monotonic() - self._from_s

    def left_s(self) -> float:
        return math.inf if self.time_s is None else self.time_s - self.elapsed_s()


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


def _spent_s(history: Sequence[Trial]) -> float:
    """On trials of the run's own; a worker's cost it no time."""
    own = (t.time for t in history if t.worker is None)
    return sum(t.searching_s + t.deploying_s + t.measuring_s + t.other_s for t in own)
