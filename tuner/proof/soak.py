"""One long load on the config to be written: a direct test of the claim that users act on.

Late requests come in busy periods, which the short windows of the rounds may miss. What a config is
credited with rests on both: see `_surely_sustained`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist, geometric_mean

from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError
from tuner.load import seeds
from tuner.proof.contender import Contender
from tuner.proof.entrants import FAR, ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.proof.rounds import RoundsResult
from tuner.reason import Reason
from tuner.record.confirmation import Role, Soak, Soaked, unknown_by
from tuner.record.proved import ProvedConfig
from tuner.score.capacity import NEAR, NoResult, Probe, is_near, saturated, steepness
from tuner.score.judge import SloOutcome, tail_slo
from tuner.score.late_share import CONFIDENCE, LateShare, measured_late_share
from tuner.score.next_load import STEEP, StepRule, next_load
from tuner.score.point import Point
from tuner.space.candidate import Candidate
from tuner.spec.slo import Slo, tail_shares

#: A soak lasts this many relaxation times of the latency, if it may: a hundred independent requests
#: give a p99 within a fifth.
RELAXATIONS = 200.0
#: It begins at this share of the mean capacity of the rounds. Simulated: with 0.95 too many of the
#: claims on queues whose SLO is 10 service times are false, with 0.90 no credit is above 0.88.
OF_MEAN = 0.93
#: Loads that one config is soaked at, at most; and at least, where time is short.
MOST_SOAKS = 8
FEWEST_SOAKS = 3
#: A miss with this many times as many late requests as the SLO allows counts on any machine.
FAR_BEYOND = 5.0
#: Below the first two loads that failed: by so much at least, and by so much at most.
LOWER = StepRule(first=0.30, least=0.04)
#: Below a third one, or below the first where rounds were measured on other CPUs: this share of it
#: at most. So many misses show that rounds and misses say little of what lasts.
NEXT_SHARE = 0.75


def first_level(contender: Contender, rules: ProofRules) -> float:
    """The load to begin with: of searched rates below the mean capacity; else what was sustained.

    Raises:
        ValueError: It has no round.
    """
    if rules.plan.searches_rates:
        return rules.plan.levels.nearest(OF_MEAN * geometric_mean(contender.levels()))
    return min(p.level for p in contender.points)


def soak(
    measured: MeasuredOnce,
    candidate: Candidate,
    rounds: Contender,
    level: float,
    rules: ProofRules,
    told: Callable[[str], None],
    *,
    at_most: int = MOST_SOAKS,
    least: float = 0.0,
    is_late: Callable[[], bool] = lambda: False,
) -> Soak:
    """Tests for long the load a config is to be credited with, then lower loads until one holds.

    Args:
        candidate: Gets a fresh server for each load.
        rounds: Its own, or those of a config that it replaces.
        level: The first load, see `first_level`.
        told: Receives a sentence about each load.
        least: A lower load is no gain: none is tried.
        is_late: Whether time is over: no load after the first `FEWEST_SOAKS` is tried.

    Raises:
        TrialError: It could not be served, or a load gave no result.
    """
    windows = [p for r in rounds.rounds for p in r.points if p.passed or is_near(p)]
    remembers_s = relaxation_s(windows)
    tried, behind, failed = list[Soaked](), list[Reason](), list[Probe]()
    lower: float | None = level
    while lower is not None and len(failed) < at_most:
        number = len(failed)
        try:
            point = _soak_once(measured, candidate, lower, rules, remembers_s, number)
        except ClientLimitError as error:
            behind.append(error.reason)
            told(error.message)
            failed.append(NoResult(lower, error.sent_per_s))
        else:
            own_s = max(remembers_s, relaxation_s([point]))
            late = measured_late_share(point.measurement, rules.slos, own_s)
            if is_near(point):  # a queue far above its bound remembers what a lower load will not
                remembers_s = own_s
            excuse = _excuse(point, late, rules.slos)
            tried.append(Soaked(point.measurement, point.slo, late, excuse))
            told(tried[-1].sentence)
            if point.outcome is not SloOutcome.MISSED:
                break  # a lower load has even fewer answers
            failed.append(point)
        if len(failed) >= FEWEST_SOAKS and is_late():
            break
        lower = _lower(failed, tried, rounds, rules, least)
    headroom = 0.0
    if tried and tried[-1].held and rules.plan.searches_rates:
        held = tried[-1].level
        sure = min(held, _surely_sustained(tried, rounds, rules))
        headroom = 1.0 - sure / held * (1.0 - float(rules.confirm.headroom))
    return Soak(tuple(tried), unknown_by(tried, behind), tuple(behind), headroom)


def _soak_once(
    measured: MeasuredOnce,
    candidate: Candidate,
    level: float,
    rules: ProofRules,
    remembers_s: float,
    number: int,
) -> Point:
    """Other arrivals each time, lest all share one luck; once more where there is no result."""

    def put() -> Point:
        return measured.on_fresh_server(
            candidate,
            Role.SOAK,
            number,
            seeds.of_soak(rules.seed) + number,
            lambda measure: measure(level),
            soak_s=RELAXATIONS * remembers_s,
        )

    try:
        return put()
    except (ModelFailsError, ClientLimitError):
        raise
    except LoadFailedError:  # the load generator may have failed
        return put()


def _lower(
    failed: Sequence[Probe],
    tried: Sequence[Soaked],
    rounds: Contender,
    rules: ProofRules,
    least: float,
) -> float | None:
    """A load below those that failed, surely sustained as far as they tell, from ``least`` on."""
    last, levels = failed[-1], rules.plan.levels
    if rules.plan.listed is not None:
        lower = (level for level in rules.plan.listed if least <= level < last.level)
        return max(lower, default=None)
    step = next_load(failed, levels, LOWER)
    if step is None:
        return None
    if not saturated(last) and not isinstance(last, NoResult):
        sure = _surely_sustained(tried, rounds, rules)
        lowest, highest = (last.level / (1.0 + by) for by in (LOWER.first or 0.0, LOWER.least))
        step = step if math.isinf(sure) else min(max(sure, lowest), highest)
    if len(failed) >= FEWEST_SOAKS or rules.shared_soak:
        step = min(step, NEXT_SHARE * last.level)
    level = levels.nearest(max(step, least))
    return level if level < last.level else None


def _surely_sustained(tried: Sequence[Soaked], rounds: Contender, rules: ProofRules) -> float:
    """The load that meets the SLO on the tail in the long run, with `CONFIDENCE`; else infinite.

    The capacity by the soaks is where their utilisation would be one. From n independent requests
    with an exponential tail, the quantile q of the latency has a relative standard error of sqrt(q
    / (1 - q) / n) / -ln(1 - q), and that of the capacity is smaller by the power of the load with
    which the latency rises. The rounds' mean capacity errs the other way: the geometric mean of the
    two is taken, less the error of the half that is uncertain.
    """
    slo = tail_slo(rules.slos)
    near = [
        s.point
        for s in tried
        if not saturated(s.point) and (s.point.slo_utilisation or 0.0) >= NEAR[0]
    ]
    quantile = 0.0 if slo is None else slo.metric.quantile or 0.0
    late = tried[-1].late
    if not rounds.rounds or not quantile or late is None:
        return math.inf
    slope = steepness([r.probes for r in rounds.rounds]) or STEEP
    by_rounds = geometric_mean(rounds.levels())
    by_soaks = [p.level * (p.slo_utilisation or 1.0) ** (-1.0 / slope) for p in near]
    both = math.sqrt(by_rounds * geometric_mean(by_soaks or [by_rounds]))
    error = math.sqrt(quantile / (1.0 - quantile) / late.effective) / -math.log1p(-quantile)
    return both * math.exp(-NormalDist().inv_cdf(CONFIDENCE) * error / slope / 2.0)


def relaxation_s(points: Sequence[Point]) -> float:
    """How long the latency remembers, by the longest time that any window showed."""
    courses = (p.measurement.course for p in points)
    return max((c.relaxation_s for c in courses if c is not None), default=0.0)


def _excuse(point: Point, late: LateShare | None, slos: Sequence[Slo]) -> str:
    """What disturbed the machine beside a miss that may be its fault; else empty."""
    if point.passed or saturated(point):
        return ""
    allowed = max((1.0 - share for share in tail_shares(slos)), default=0.0)
    if late is not None and late.share > FAR_BEYOND * allowed:
        return ""
    return " ".join(point.measurement.disturbance_texts).rstrip(".")


def least_gain_level(race: RoundsResult, winner: Contender, rules: ProofRules) -> float:
    """A lower load is no gain over the current config; 0 where its capacity is not known.

    What it sustains for long may be as much below its rounds as a step of the soaks.
    """
    if not rules.plan.searches_rates or rules.objective.metric is not None:
        return 0.0
    compared = winner.candidate in race.ratios
    now = race.current.expected_level() if compared else race.current.entrant.at_most
    return NEXT_SHARE * (1.0 + float(rules.confirm.min_gain)) * now if math.isfinite(now) else 0.0


def lowered_share(proved: ProvedConfig, level: float) -> float:
    """The share of the first soak's load ``level`` that held; 1 without a soak."""
    return 1.0 if proved.held is None else proved.held.level / level


def surely_less(
    race: RoundsResult,
    winner: Contender,
    baseline: ProvedConfig | None,
    proved: ProvedConfig,
    rules: ProofRules,
    level: float,
) -> bool:
    """Whether search and rounds show that the current config sustains less than is credited.

    ``level``: the load of the winner's first soak.
    """
    ratio = race.ratios.get(winner.candidate)
    if ratio is None or rules.looks is not None:  # looks judge no SLO
        return FAR * race.current.entrant.at_most <= proved.credited_level
    now = None if baseline is None else baseline.credited_infer_per_s
    then = proved.credited_infer_per_s
    more = rules.objective.metric is not None or now is None or then is None or now < then
    enough = 1.0 + float(rules.confirm.min_gain)
    return more and ratio.estimate * lowered_share(proved, level) >= enough
