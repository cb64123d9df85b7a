"""From the trials to a verdict: whether there is a config worth writing, and whether it holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tuner.confirm.confirm import Confirmation, Outcome, Rules, confirm
from tuner.confirm.rounds import Entrant, Round, Row
from tuner.confirm.simplify import Simplified, same_answers, simplify
from tuner.confirm.soak import claim_window_s, most_claim_window_s
from tuner.errors import NothingToSearchError, TooManyFailedTrialsError, TrialError
from tuner.programs.run.finalists import (
    feasible,
    finalists_of,
    held_to_low_loads,
    missed_when_idle,
)
from tuner.programs.run.outcome import Verdict
from tuner.run.confirmation import Soak
from tuner.run.proved import ProvedConfig
from tuner.run.result_schema import Gain, Means
from tuner.run.result_schema import Rounds as GainRounds
from tuner.run.status import Status
from tuner.score.capacity import Bracket, saturated
from tuner.score.next_load import LoadPlan, next_load
from tuner.score.point import Point
from tuner.score.ratio import CONFIDENCE
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate, list_sizes
from tuner.space.words import changes_text
from tuner.spec.slo import Goal
from tuner.spec.units import digits
from tuner.steps.estimate import length_s
from tuner.steps.events import Events
from tuner.steps.session import Session
from tuner.steps.soaking import soak_winner


def prove(session: Session, trials: Sequence[Trial]) -> Verdict:
    """Confirms the finalists; the best that holds is made as simple as possible, and soaked.

    What is optional is left out once the plan's time is over, and the reasons say so.

    Raises:
        InterruptedRunError: The user stopped it.
        TooManyFailedTrialsError: Every config but the current one failed.
        NothingToSearchError: None was tried in the budget's time or trials.
    """
    verdict = _decide(session, trials)
    return replace(verdict, reasons=(*verdict.reasons, *session.deadline.told))


def _decide(session: Session, trials: Sequence[Trial]) -> Verdict:
    trials, idle = held_to_low_loads(session, trials)
    baseline = ProvedConfig.of_trial(_trial_of(session.current, trials))
    if not feasible(trials, session.spec, session.current):
        nearest = () if idle else (_nearest_miss(trials, session.plan),)
        reasons = (*idle, *nearest, *_failures(session, trials), *_limits(trials))
        return Verdict(Status.INFEASIBLE, reasons, baseline)
    finalists = _finalists(session, trials)
    _refuse_without_alternative(session, trials)
    if not finalists:
        reason = "No config tried is better than the current one by what a change must be worth."
        reasons = (reason, *_failures(session, trials), *_limits(trials))
        limited = baseline is not None and baseline.at_least
        return Verdict(Status.NOT_KNOWN if limited else Status.KEPT, reasons, baseline)
    verdict = _take_best(session, trials, finalists, baseline)
    return replace(verdict, reasons=(*idle, *verdict.reasons))


def _take_best(
    session: Session,
    trials: Sequence[Trial],
    finalists: Sequence[Trial],
    baseline: ProvedConfig | None,
) -> Verdict:
    """Confirms all finalists in rotation; keeps the best that also gives the same answers.

    A config that cannot be measured again counts as one that did not hold.
    """
    names = {t.candidate: changes_text(t.candidate, session.current) for t in finalists}
    session.events.phase(f"confirming: {' | '.join(names.values())}")
    try:
        results = _confirm(session, finalists, _trial_of(session.current, trials))
    except TrialError as error:
        reason = f"the current config could not be measured again: {error.message}"
        return Verdict(Status.NOT_KNOWN, (reason,), baseline)
    baseline = _baseline_again(baseline, results[0])
    reasons = [*_limits(finalists), *(f"{names[r.candidate]}: {r.reason}" for r in results)]
    outcomes = {r.candidate: r.outcome for r in results}
    for result in _best_first(session, results):
        name = names[result.candidate]
        try:
            simplest = _simplify(session, result, trials)
            idle = missed_when_idle(session, simplest.candidate, simplest.proof.level)
            if idle and simplest.candidate != result.candidate:
                reasons.append(f"{name}: nothing is undone, since without it {idle}")
                simplest = Simplified(result, ())
                idle = missed_when_idle(session, result.candidate, result.level)
            if idle:
                reasons.append(f"{name}: {idle}")
                outcomes[result.candidate] = Outcome.NOT_FEASIBLE
                continue
            session.events.phase("comparing answers")
            tolerance = session.spec.confirm.tolerance
            answers = same_answers(session.bench, session.current, simplest.candidate, tolerance)
            reasons.append(f"{name}: {answers.sentence}")
            if answers.changed:
                continue
            proven = soak_winner(session, simplest.proof)
        except TrialError as error:
            reasons.append(f"{name}: {error.message}")
            continue
        reasons += [f"{name}: {proven.reason}"] if proven.reason else []
        if proven.refused is None:
            told = (*reasons, *_failures(session, trials))
            return _improved(session, simplest, proven.soak, baseline, told)
        outcomes[result.candidate] = proven.refused
    no_gain = all(outcome is Outcome.NOT_BETTER for outcome in outcomes.values())
    status = Status.KEPT if no_gain else Status.NOT_KNOWN
    told = (*reasons, *_failures(session, trials))
    compared = [r for r in results if r.gain is not None and r.points]
    if not compared:
        return Verdict(status, told, baseline)
    best = max(compared, key=lambda r: r.ratio.estimate if r.ratio else 0.0)
    other = ProvedConfig.of(best.candidate, best.points, at_least=best.own.limited)
    return Verdict(status, told, baseline, best=other, gain=_gain_of(session, best))


def find_confirmed(session: Session, trials: Sequence[Trial]) -> list[Confirmation]:
    """The finalists that hold against the current config, best first; nothing else is tested.

    Raises:
        TrialError: The current config could not be measured again.
    """
    baseline = _trial_of(session.current, trials)
    finalists = _finalists(session, trials)
    return _best_first(session, _confirm(session, finalists, baseline)) if finalists else []


def _trial_of(candidate: Candidate, trials: Sequence[Trial]) -> Trial | None:
    return next((t for t in trials if t.candidate == candidate), None)


def _best_first(session: Session, results: Sequence[Confirmation]) -> list[Confirmation]:
    """Those that were confirmed, by their gain; first the equals that sustain all that is sent."""
    held = [r for r in results if r.outcome is Outcome.CONFIRMED]
    if session.spec.objective.goal is Goal.MINIMIZE and any(r.ratio is None for r in held):
        return held  # in the order of the search
    rest = [r for r in held if not r.own.limited]
    rest.sort(key=lambda r: -(r.ratio.estimate if r.ratio else r.level))
    return [*(r for r in held if r.own.limited), *rest]


def _simplify(session: Session, result: Confirmation, trials: Sequence[Trial]) -> Simplified:
    session.events.phase("looking for the simplest config that is as good")
    space, sizes = session.job.space, list_sizes(session.spec)
    minimise = session.spec.objective.goal is Goal.MINIMIZE

    def name(candidate: Candidate) -> str:
        return f"the winner with {changes_text(candidate, result.candidate)}"

    def allowed(candidate: Candidate) -> bool:
        late = session.deadline.leaves_out("undoing changes")
        return not (late or space.violations(candidate))

    def ceiling(candidate: Candidate) -> float | None:
        return None if minimise else _ceiling(_trial_of(candidate, trials))

    with _rounds_told(session.record, session.events, name) as record:
        rules = _rules(session, record)
        return simplify(session.bench, result, rules, allowed, sizes, ceiling, space.alike)


def _ceiling(trial: Trial | None) -> float | None:
    """What an open loop's config surely does not sustain, in inferences per second.

    By the search: the least it answered when saturated, or a load at which it missed an SLO.
    """
    points = [] if trial is None else [p for p in trial.points if not p.undecided]
    if not points or not points[0].measurement.load.arrivals.open_loop:
        return None
    known = [p.served_per_s for p in points if saturated(p) and p.served_per_s is not None]
    if missed := Bracket.of(points).ceiling:
        known.append(missed.level)
    return min(known) * points[0].measurement.batch_size if known else None


def _improved(
    session: Session,
    simplest: Simplified,
    soaked: Soak | None,
    baseline: ProvedConfig | None,
    reasons: tuple[str, ...],
) -> Verdict:
    own = simplest.proof.own
    found = ProvedConfig.of(simplest.candidate, own.points, soak=soaked, at_least=own.limited)
    return Verdict(
        Status.IMPROVED,
        reasons,
        baseline,
        found,
        gain=_gain_of(session, simplest.proof),
        simplification=simplest.tried,
    )


def _gain_of(session: Session, proof: Confirmation) -> Gain | None:
    """What the rounds of a finalist and the current config showed; None if nothing compares."""
    metric, found = session.spec.objective.metric, proof.gain
    if found is None:
        return None
    loads = "throughput" if session.plan.listed else "capacity"
    ratio, endless = found.ratio, math.isinf(found.ratio.high)
    return Gain(
        ratio=replace(ratio, high=ratio.estimate) if endless else ratio,
        confidence=CONFIDENCE,
        compared=loads if metric is None else metric.name,
        means=None if found.means is None else Means(best=found.means[0], current=found.means[1]),
        rounds=GainRounds(best=found.rounds[0], current=found.rounds[1]),
        at_least=found.at_least or endless,
    )


def _baseline_again(baseline: ProvedConfig | None, result: Confirmation) -> ProvedConfig | None:
    """The current config as the confirmation measured it, where it did.

    Where that was only at a load it does not sustain, what it sustained in the search says more.
    """
    current = result.current
    if baseline is None or not current.points:
        return baseline
    if current.at_most and baseline.credited_infer_per_s is not None:
        return baseline
    return ProvedConfig.of(
        baseline.candidate,
        current.points,
        at_most_infer_per_s=min(current.capacities()) if current.at_most else None,
        at_least=current.limited,
        from_search=current.outclassed,  # one rough round is no more than one of the search
    )


def _finalists(session: Session, trials: Sequence[Trial]) -> list[Trial]:
    return finalists_of(trials, session.spec, session.current, session.near_miss)


def _confirm(
    session: Session, finalists: Sequence[Trial], baseline: Trial | None
) -> list[Confirmation]:
    def level_of(trial: Trial) -> float | None:
        return trial.sustained_level if session.plan.listed else trial.capacity_level

    level = None if baseline is None else level_of(baseline)
    if baseline is not None and baseline.state is TrialState.PRUNED:
        level = next_load([p for p in baseline.points if not p.undecided], session.plan.levels)
    if session.spec.objective.goal is Goal.MINIMIZE and baseline is not None and baseline.points:
        level = session.spec.objective.at_level
    sustained = baseline is not None and any(p.passed or p.undecided for p in baseline.points)
    window_s = _claim_window_s(session, baseline.points) if baseline is not None else 0.0
    current = Entrant(session.current, level, sustained, window_s)
    entrants = []
    for trial in finalists:
        window_s = _claim_window_s(session, trial.points)
        expected = level_of(trial) or min(p.level for p in trial.points)
        entrants.append(Entrant(trial.candidate, expected, window_s=window_s))

    def name(candidate: Candidate) -> str:
        return changes_text(candidate, session.current)

    with _rounds_told(session.record, session.events, name) as record:
        return confirm(session.bench, current, entrants, _rules(session, record))


def _claim_window_s(session: Session, points: Sequence[Point]) -> float:
    most_s = most_claim_window_s(session.spec.workload)
    return min(claim_window_s(points, session.spec.slos), most_s)


def _rules(session: Session, record: Callable[[Row], None]) -> Rules:
    return Rules(
        objective=session.spec.objective,
        levels=None if session.plan.listed else session.plan.levels,
        rounds=session.spec.confirm.rounds,
        min_gain=float(session.spec.confirm.min_gain),
        seed=session.first_seed,
        record=record,
        claim_window_s=lambda points: _claim_window_s(session, points),
        soaked=float(session.spec.confirm.soak) > 0.0,
        length_s=lambda level: length_s(session.spec, session.plan, level, brief=False),
        late=lambda: session.deadline.leaves_out("further rounds"),
    )


def _refuse_without_alternative(session: Session, trials: Sequence[Trial]) -> None:
    """Raises unless another config was measured, since the current one is kept by comparison."""
    others = [t for t in trials if t.candidate != session.current]
    if any(t.state is not TrialState.FAILED for t in others):
        return
    if not others:
        raise NothingToSearchError(
            "no config but the current one was measured, so nothing was compared",
            "raise budget.trials or budget.time",
        )
    raise TooManyFailedTrialsError(
        f"nothing could be compared with the current config. {_failures(session, trials)[0]}",
        "the report lists every reason; logs/server.log holds the server's own words",
    )


def _failures(session: Session, trials: Sequence[Trial]) -> list[str]:
    """A sentence where configs other than the current one gave no measurement."""
    others = [t for t in trials if t.candidate != session.current]
    failed = [t for t in others if t.state is TrialState.FAILED]
    if not failed:
        return []
    every = f"Every other config tried failed ({len(failed)})"
    some = f"{len(failed)} of {len(others)} other configs tried failed"
    how = every if len(failed) == len(others) else some
    return [f"{how}, the last one: {failed[-1].reason}"]


def _limits(trials: Sequence[Trial]) -> list[str]:
    """What ended the measuring of the best trials where that was not the config itself."""
    said = dict.fromkeys(t.limit for t in trials if t.limit)
    return [f"Not every config was measured to its capacity: {text}" for text in said][-1:]


def _nearest_miss(trials: Sequence[Trial], plan: LoadPlan) -> str:
    scored = [t for t in trials if t.score is not None]
    if not scored:
        return "No trial gave a measurement."
    nearest = min(scored, key=lambda t: t.score.violation if t.score else 0.0)
    missed = [s for p in nearest.points[-1:] for s in p.slo if (s.margin or 0.0) < 0]
    what = "; ".join(s.expression for s in missed) or "an SLO without enough data"
    sentence = (
        f"No config measured meets every SLO. The nearest was trial {nearest.number}, which misses"
    )
    lowest = min((p.level for p in nearest.points), default=math.inf)
    if not plan.arrivals.open_loop or plan.listed or lowest > plan.levels.lowest:
        return f"{sentence} {what}."
    return (
        f"{sentence} {what} at {digits(lowest, 3)}/s. At lower rates max_window is too short for a "
        "verdict: raise it, or bound a lower percentile."
    )


@contextmanager
def _rounds_told(
    record: Callable[[Row], None], events: Events, name: Callable[[Candidate], str]
) -> Iterator[Callable[[Row], None]]:
    """Gives a function that passes each row on to ``record``.

    A round of a config is reported when the next one has begun, or when the context is left.
    """
    rows: list[Row] = []

    def over() -> None:
        if rows:
            what = f"round {rows[0].round + 1}, {name(rows[0].candidate)}"
            events.round_over(what, Round(tuple(r.point for r in rows)).sustained)
            rows.clear()

    def told(row: Row) -> None:
        record(row)
        if rows and (rows[0].round, rows[0].candidate) != (row.round, row.candidate):
            over()
        rows.append(row)

    try:
        yield told
    finally:
        over()
