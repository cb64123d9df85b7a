"""Which configs of a search take part in the proof, and what the search knows of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tuner.errors import TrialError
from tuner.load import seeds
from tuner.measurement.measurement import LoadPoint
from tuner.measurement.window import round_window, window_of
from tuner.meter.session import Session
from tuner.reason import Fact, Reason, ReasonKind
from tuner.score.capacity import Bracket, saturated
from tuner.score.judge import SloOutcome, Verdict
from tuner.score.next_load import LoadPlan, next_load
from tuner.score.point import Point
from tuner.score.saturation import Saturated
from tuner.score.trial import Trial, TrialState
from tuner.search.estimate import LEAST_LOOK_S, LOOK_ANSWERS, SLOW_ROUND_S
from tuner.search.first_load import FIRST_SHARE
from tuner.search.incumbent import leaders, near_misses, reached_level
from tuner.sentences import sentence
from tuner.space.candidate import Candidate
from tuner.spec.model import Confirm, Spec
from tuner.spec.slo import Goal, Objective, Slo

#: Loads are rounded to five digits.
_ROUNDED = 1.0 - 1e-4
#: A config that answered less than one part in so many of a load is not measured beside one that
#: sustains it: servers and searches differ by some percent, not by three times.
FAR = 3.0
#: A look at a tenth of the load that takes longer than this, in seconds, is left out.
LONG_S = 20.0
#: The search knows a capacity by two or three loads: shares this near are alike.
SAME_USE = 0.2


@dataclass(frozen=True)
class Looks:
    """How rounds of a slow model are made: looks at what it answers when it is saturated.

    Attributes:
        in_flight: So many requests are always sent and not yet answered.
        length_s: Of each look.
    """

    in_flight: int
    length_s: float


@dataclass(frozen=True)
class ProofRules:
    """What is compared, under which loads, and by which settings of the spec.

    Attributes:
        confirm: The spec's own.
        seed: Of the first round's arrivals; later rounds count up.
        continued: Rounds go on beyond ``confirm.rounds``, until the time is over.
        shared_soak: The server of a soak shares CPUs with its load generator, those of rounds do
            not: rounds say little of what holds there.
        looks: What rounds are, see `looks_of`; None: measurements under loads that a config should
            sustain.
    """

    objective: Objective
    slos: tuple[Slo, ...]
    plan: LoadPlan
    confirm: Confirm
    seed: int
    continued: bool = False
    shared_soak: bool = False
    looks: Looks | None = None


@dataclass(frozen=True)
class Entrant:
    """A config that takes part.

    Attributes:
        level: The load that it should sustain, or the one that the spec lists.
        at_most: Requests a second that it does not sustain: the lowest load at which it missed an
            SLO, or the most that it ever answered (utilisation law; Denning and Buzen, 1978).
            Infinite where neither was seen.
        seen: The measurement of the search that its score is for; None where it met the SLOs at no
            load.
        saturated: What it answered there when it was saturated, where it was asked.
    """

    candidate: Candidate
    level: float
    at_most: float = math.inf
    seen: Point | None = None
    saturated: Saturated | None = None


def entrant_of(trial: Trial, rules: ProofRules) -> Entrant:
    """What the trial of a config, which was measured or at least screened, shows of it."""
    plan, listed = rules.plan, rules.plan.listed is not None
    level = trial.sustained_level if listed else trial.capacity_level
    if rules.objective.at_level is not None:
        level = rules.objective.at_level
    few = [p.level for p in trial.points if p.outcome is SloOutcome.TOO_FEW]
    decided = [p for p in trial.points if p.outcome is not SloOutcome.TOO_FEW]
    if level is None and decided and not listed:
        level = next_load(decided, plan.levels)
    at_most = math.inf
    if plan.searches_rates:
        missed = Bracket.of(trial.points).ceiling
        at_most = math.inf if missed is None else missed.level
        if any(saturated(p) and p.served_per_s for p in trial.points):
            at_most = min(at_most, max(p.served_per_s or 0.0 for p in trial.points))
        seen = trial.saturated
        if seen is not None and seen.at_most_per_s is not None:
            at_most = min(at_most, seen.at_most_per_s)
    if level is None:
        lowest = min((p.level for p in decided), default=FIRST_SHARE * at_most)
        level = max(few) if few and not decided else lowest
    best = None if trial.score is None else trial.score.best_point
    judged = None if best is None else trial.points[best]
    return Entrant(trial.candidate, level, at_most, judged, trial.saturated)


def entrant_of_current(
    trial: Trial | None, current: Candidate, best: Entrant, rules: ProofRules, low: LowLoads
) -> Entrant:
    """The current config as the search knows it, whatever it met or missed there."""
    if trial is None or not (trial.points or trial.saturated):
        return Entrant(current, best.level)
    entrant = entrant_of(trial, rules)
    return replace(entrant, at_most=0.0) if current in low.missed else entrant


def looks_of(spec: Spec, plan: LoadPlan, entrants: Sequence[Entrant]) -> Looks | None:
    """Whether rounds of these configs are looks, and which; None: they are measurements.

    A percentile needs hundreds of answers, which take a slow model minutes; what a config answers
    when it is saturated is known after some. It compares configs only where it explains what they
    sustain: where their capacities in the search are about the same share of it. The soaks, of the
    winner and of the current config, judge the percentile.
    """
    seen = [e.saturated for e in entrants if e.saturated is not None and e.seen is not None]
    if not plan.searches_rates or spec.objective.metric is not None or len(seen) < len(entrants):
        return None
    alike = {(s.in_flight, s.batch_size) for s in seen}
    window_s = max(round_window(spec, LoadPoint(plan.arrivals, e.level)).total_s for e in entrants)
    if len(alike) > 1 or window_s < SLOW_ROUND_S:
        return None
    used = [e.level / s.answered_per_s for e, s in zip(entrants, seen, strict=True)]
    if max(used) > (1.0 + SAME_USE) * min(used):
        return None
    length_s = LOOK_ANSWERS / min(s.answered_per_s for s in seen)
    return Looks(seen[0].in_flight, min(max(length_s, LEAST_LOOK_S), window_s))


def far_behind(one: Entrant, other: Entrant) -> bool:
    """Whether the search has shown that ``one`` sustains far less than ``other``."""
    return FAR * one.at_most <= other.level


def nearest_of(trials: Sequence[Trial], current: Candidate, rules: ProofRules) -> Entrant:
    """The one that may sustain most, of the other configs that were measured."""
    others = [t for t in trials if t.candidate != current and t.state is not TrialState.FAILED]
    return max((entrant_of(t, rules) for t in others), key=lambda e: e.at_most)


def finalists_of(
    trials: Sequence[Trial], spec: Spec, current: Candidate, near_miss: float
) -> list[Trial]:
    """The best few that seem better than the current config by enough, else the best other one.

    Noise counts in the candidate's favour: the rounds decide. Candidates that lost their race by no
    more than noise (the SLO utilisation ``near_miss``) come after those that did not lose.
    """
    baseline = next((t for t in trials if t.candidate == current), None)
    gain = 1.0 + float(spec.confirm.min_gain)
    others = [t for t in leaders(trials, spec.objective.goal, current) if t.candidate != current]
    if spec.objective.goal is Goal.MINIMIZE:
        chosen = [t for t in others if _less(t, baseline, gain)]
    else:
        chosen = [t for t in others if _more(t, baseline, gain, near_miss)]
        lost = [t for t in near_misses(trials, near_miss) if t.candidate != current]
        baseline_level = None if baseline is None else baseline.sustained_level
        chosen += [
            t
            for t in lost
            if baseline_level is None or min(p.level for p in t.points) > baseline_level * gain
        ]
    pruned = (t for t in trials if t.state is TrialState.PRUNED and t.candidate != current)
    best_other = others or sorted(
        (t for t in pruned if t.score is not None),
        key=lambda t: t.order(spec.objective.goal),
    )
    return (chosen or best_other[:1])[: spec.confirm.finalists]


def _less(trial: Trial, baseline: Trial | None, gain: float) -> bool:
    bar = None if baseline is None else baseline.score
    if bar is None or not bar.feasible:
        return True
    return trial.score is not None and trial.score.value * gain < bar.value


def _more(trial: Trial, baseline: Trial | None, gain: float, near_miss: float) -> bool:
    """It has the goodput, or nearly sustained the load, that would be worth a change."""
    bar = None if baseline is None else baseline.score
    if baseline is None or bar is None or not bar.feasible:
        return True
    baseline_level, reached = baseline.sustained_level, reached_level(trial, near_miss)
    if (
        baseline_level is not None
        and reached is not None
        and reached >= baseline_level * gain * _ROUNDED
    ):
        return True
    return trial.score is not None and trial.score.value > bar.value * gain


def slo_missed_at_low_load(
    session: Session, candidate: Candidate, level: float = 0.0
) -> Reason | None:
    """The SLO that a config misses for a lone request, or at a tenth of ``level``; else None.

    A batcher that waits for more requests keeps a lone one for all its queue delay. Nothing is
    asked of a closed loop, or where the spec says which loads there are.

    Raises:
        TrialError: The config could not be served, or gave no result.
    """
    plan, seed = session.plan, seeds.of_overload(session.spec.search.seed)
    if not plan.searches_rates:
        return None
    session.bench.deploy(candidate)
    alone_s = session.bench.one_at_a_time(seed)
    for slo in session.spec.slos:
        took_us = 1e6 * alone_s.get(slo.stream, 0.0)
        if slo.metric.of_full_response and took_us > slo.bound:
            delay_us = session.job.space.queue_delay_us(candidate)
            facts: dict[str, Fact] = {"took_ms": float(took_us) / 1e3, "slo": str(slo)}
            if delay_us:
                facts["queue_delay_ms"] = delay_us / 1e3
            return Reason(ReasonKind.LONE_REQUEST_MISSES, facts=facts)
    tenth = plan.levels.nearest(level / 10.0)
    window = window_of(session.spec, LoadPoint(plan.arrivals, tenth))
    if tenth >= level or window.total_s > LONG_S:
        return None
    for again in range(2):  # what happens once may be due to what was before
        point = session.bench.once(tenth, seed + again, window)
        missed = [s.expression for s in point.slo if s.verdict is Verdict.FAIL]
        if not missed or point.measurement.disturbances:
            return None
    facts = {"rate_per_s": float(tenth), "slo": missed[0]}
    return Reason(ReasonKind.LOW_LOAD_MISSES, facts=facts)


class LowLoads(NamedTuple):
    """What few requests showed.

    Attributes:
        trials: Of the search, infeasible where the config misses an SLO at low loads.
        missed: Those configs, which sustain no load.
        reasons: About each.
    """

    trials: list[Trial]
    missed: list[Candidate]
    reasons: list[Reason]


def at_low_loads(session: Session, trials: Sequence[Trial]) -> LowLoads:
    """Sends the current config few requests.

    The best others are asked only where the current config misses an SLO: most share its cause.
    """
    updated, misses, reasons = list(trials), list[Candidate](), list[Reason]()
    current = [t for t in trials if t.candidate == session.current and t.points]
    leading = leaders(trials, session.spec.objective.goal, session.current)
    others = [t for t in leading if t not in current]
    for trial in [*current, *others[: 2 * session.spec.confirm.finalists]] if current else []:
        name = "the current config" if trial in current else f"trial {trial.number}"
        try:
            missed = slo_missed_at_low_load(session, trial.candidate, trial.sustained_level or 0.0)
        except TrialError as error:
            session.events.note(f"{name} was not asked at low loads: {error.message}")
            missed = None
        if missed is not None:
            misses.append(trial.candidate)
            reasons.append(missed.of(name))
            session.events.note(sentence(reasons[-1]))
            assert trial.score is not None
            score = replace(trial.score, feasible=False, violation=1.0, best_point=None)
            updated[updated.index(trial)] = replace(trial, state=TrialState.MEASURED, score=score)
        elif trial in current:
            break
    return LowLoads(updated, misses, reasons)
