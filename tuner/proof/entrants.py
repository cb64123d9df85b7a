"""Which configs of a search take part in the proof, and what the search knows about them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tuner.errors import TrialError
from tuner.load import seeds
from tuner.measurement.measurement import LoadPoint, Measurement
from tuner.measurement.window import window_of
from tuner.meter.session import Session
from tuner.reason import Fact, Reason, ReasonKind
from tuner.score.judge import SloOutcome, Verdict
from tuner.score.late_share import missed_by_chance
from tuner.score.next_load import LoadPlan, next_load
from tuner.score.point import Point
from tuner.score.saturation import FAR, Saturated
from tuner.score.trial import Trial, TrialState, trial_of
from tuner.search.estimate import LEAST_LOOK_S, LOOK_ANSWERS, SLOW_ROUND_S
from tuner.search.first_load import FIRST_SHARE
from tuner.search.incumbent import leaders, near_misses, reached_level
from tuner.search.screening import Screening
from tuner.sentences import sentence
from tuner.space.candidate import Candidate
from tuner.spec.model import Confirm, Spec
from tuner.spec.slo import Goal, Objective, Slo

#: Loads are rounded to five digits.
_ROUNDED = 1.0 - 1e-4
#: A measurement at a tenth of the load is left out if it takes longer than this, in seconds.
LONG_S = 20.0
#: Two shares that differ by less than this are alike: two or three loads determine a capacity.
SAME_USE = 0.2


@dataclass(frozen=True)
class Looks:
    """How rounds of slow models measure: the throughput of a saturated config.

    Attributes:
        in_flight: The number of requests that are kept in flight.
        length_s: The length of one look, in seconds.
    """

    in_flight: int
    length_s: float


@dataclass(frozen=True)
class ProofRules:
    """What is compared, under which loads, and by which settings of the spec.

    Attributes:
        confirm: The settings under ``confirm`` in the spec.
        seed: The seed of the first round's arrivals; each further round adds 1.
        continued: Rounds continue beyond ``confirm.rounds``, until the time is over.
        shared_soak: In a soak, server and load generator share CPUs, but not in a round: so rounds
            predict the soak's result poorly.
        looks: How rounds measure where they are looks, see `looks_of`; None where rounds measure
            near the expected capacity, or at a listed load.
    """

    objective: Objective
    slos: tuple[Slo, ...]
    plan: LoadPlan
    confirm: Confirm
    seed: int
    continued: bool = False
    shared_soak: bool = False
    looks: Looks | None = None

    @property
    def compares_capacities(self) -> bool:
        """Whether rounds compare capacities, which they search as rates."""
        return self.plan.searches_rates and self.objective.metric is None and self.looks is None


@dataclass(frozen=True)
class Entrant:
    """A config that takes part in the proof, with what the search knows about it.

    Attributes:
        level: The level that the config should sustain, or a level that the spec lists.
        at_most: Upper bound on the sustained level, see `Trial.at_most_per_s`.
        seen: The measurement of the search that the score is for; None where the config met the
            SLOs at no load.
        saturated: The screening of the config, where the search screened it.
    """

    candidate: Candidate
    level: float
    at_most: float = math.inf
    seen: Point | None = None
    saturated: Saturated | None = None


def entrant_of(trial: Trial, rules: ProofRules) -> Entrant:
    """The entrant of a trial that was measured, or at least screened."""
    plan, listed = rules.plan, rules.plan.listed is not None
    level = trial.sustained_level if listed else trial.capacity_level
    if rules.objective.at_level is not None:
        level = rules.objective.at_level
    few = [p.level for p in trial.points if p.outcome is SloOutcome.TOO_FEW]
    decided = [p for p in trial.points if p.outcome is not SloOutcome.TOO_FEW]
    if level is None and decided and not listed:
        level = next_load(decided, plan.levels)
    at_most = trial.at_most_per_s if plan.searches_rates else math.inf
    if level is None:
        lowest = min((p.level for p in decided), default=FIRST_SHARE * at_most)
        level = max(few) if few and not decided else lowest
    best = None if trial.score is None else trial.score.best_point
    judged = None if best is None else trial.points[best]
    return Entrant(trial.candidate, level, at_most, judged, trial.saturated)


def entrant_of_current(
    trial: Trial | None, current: Candidate, best: Entrant, rules: ProofRules, low: LowLoads
) -> Entrant:
    """The current config as an entrant, also where it met the SLOs at no load.

    Without any measurement of the search, its expected level is that of ``best``.
    """
    if trial is None or not (trial.points or trial.saturated):
        return Entrant(current, best.level)
    entrant = entrant_of(trial, rules)
    return replace(entrant, at_most=0.0) if current in low.missed else entrant


def looks_of(spec: Spec, plan: LoadPlan, entrants: Sequence[Entrant]) -> Looks | None:
    """How rounds of these configs look, where rounds are looks; None where they are not.

    A percentile needs hundreds of answers, which take a slow model minutes. The throughput of a
    saturated config needs only some. Looks replace the other rounds only where the saturated
    throughput predicts the capacity: in the search, the capacities were about the same share of it
    for all configs. The soaks of the winner and the current config judge the percentile.
    """
    seen = [e.saturated for e in entrants if e.saturated is not None and e.seen is not None]
    if not plan.searches_rates or spec.objective.metric is not None or len(seen) < len(entrants):
        return None
    alike = {(s.in_flight, s.batch_size) for s in seen}
    loads = (LoadPoint(plan.arrivals, e.level) for e in entrants)
    window_s = max(window_of(spec, load, brief=True).total_s for load in loads)
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
    """The config with the highest upper bound, of those that did not fail, without the current one.

    Raises:
        ValueError: No other config was measured.
    """
    others = [t for t in trials if t.candidate != current and t.state is not TrialState.FAILED]
    return max((entrant_of(t, rules) for t in others), key=lambda e: e.at_most)


def finalists_of(
    trials: Sequence[Trial], spec: Spec, current: Candidate, near_miss: float
) -> list[Trial]:
    """The best trials that seem better than the current config by the least gain worth a change.

    There are at most ``confirm.finalists``; without any, the best other trial is the finalist. In
    doubt a trial is a finalist, since the rounds decide. Candidates that lost their race within the
    noise (up to the SLO utilisation ``near_miss``) come after those that did not lose.
    """
    baseline = trial_of(current, trials)
    gain = spec.confirm.least_ratio
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
    """Whether its goodput, or the load it nearly sustained, is a gain worth a change."""
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
    """The SLO that a config misses for a single request, or at a tenth of ``level``; else None.

    A batcher that waits for more requests delays a single request by the whole queue delay. Nothing
    is measured for a closed loop, or where the spec lists the loads.

    ``level``: the load that the config sustains, in requests per second; 0: only single requests.

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
    window = window_of(session.spec, LoadPoint(plan.arrivals, tenth), brief=True)
    if tenth >= level or window.total_s > LONG_S:
        return None
    windows, missed = list[Measurement](), list[Slo]()
    for again in range(2):  # a single miss may come from earlier requests
        point = session.bench.once(tenth, seed + again, window)
        windows.append(point.measurement)
        judged = zip(session.spec.slos, point.slo, strict=True)
        missed = [slo for slo, result in judged if result.verdict is Verdict.FAIL]
        if not missed or point.measurement.disturbances:
            return None
    missed = [slo for slo in missed if not missed_by_chance(slo, windows)]
    if not missed:
        return None
    facts = {"rate_per_s": float(tenth), "slo": str(missed[0])}
    return Reason(ReasonKind.LOW_LOAD_MISSES, facts=facts)


class LowLoads(NamedTuple):
    """The results at low loads.

    Attributes:
        trials: The trials of the search; infeasible where the config misses an SLO at low loads.
        missed: The configs that miss an SLO at low loads: they sustain no load.
        reasons: The reason for each of these configs.
    """

    trials: list[Trial]
    missed: list[Candidate]
    reasons: list[Reason]


def at_low_loads(session: Session, trials: Sequence[Trial]) -> LowLoads:
    """Tests the current config at low loads.

    The best other configs are tested only if the current config misses an SLO, since the cause is
    often common to all configs.
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
            session.events.note(f"{name} was not tested at low loads: {error.message}")
            if trial in current:
                break  # it may not be deployed
            continue
        if missed is not None:
            misses.append(trial.candidate)
            reasons.append(missed.of(name))
            session.events.note(sentence(reasons[-1]))
            assert trial.score is not None
            score = replace(trial.score, feasible=False, violation=1.0, best_point=None)
            updated[updated.index(trial)] = replace(trial, state=TrialState.MEASURED, score=score)
        elif trial in current:
            updated[updated.index(trial)] = _bounded(session, trial, leading)
            break
    return LowLoads(updated, misses, reasons)


def _bounded(session: Session, trial: Trial, leading: Sequence[Trial]) -> Trial:
    """The trial of the deployed current config, with a look if that shows it to be far behind.

    The search may suggest that by an overload, which bounds nothing.
    """
    best = max((t.sustained_level or 0.0 for t in leading), default=0.0)
    if FAR * trial.at_most_per_s <= best or not trial.answered_less_than(best / FAR):
        return trial
    screening = Screening(session)
    try:
        screening.bound(trial.candidate, best)
    except TrialError as error:
        session.events.note(f"no bound of the current config: {error.message}")
    seen = screening.seen.get(trial.candidate.key)
    bounded = replace(trial, saturated=seen or trial.saturated)
    return bounded if FAR * bounded.at_most_per_s <= best else trial
