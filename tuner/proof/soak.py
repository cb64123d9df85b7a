"""One long load on the config to be written: a direct test of the load it is credited with.

Late requests come in busy periods, which the short windows of the rounds may miss. So the credited
load depends on both soaks and rounds: see `surely_sustained`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import geometric_mean

from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError, TrialError
from tuner.load import seeds
from tuner.proof.contender import Contender
from tuner.proof.entrants import ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.proof.next_soak import (
    FEWEST_SOAKS,
    NEXT_SHARE,
    higher_load,
    lower_load,
    surely_sustained,
)
from tuner.proof.rounds import RoundsResult
from tuner.reason import Reason, ReasonKind
from tuner.record.confirmation import Role, Soak, Soaked, unknown_by
from tuner.record.proved import ProvedConfig
from tuner.score.capacity import NoResult, Probe, is_near, saturated
from tuner.score.judge import SloOutcome
from tuner.score.late_share import LateShare, measured_late_share
from tuner.score.point import Point
from tuner.score.saturation import FAR
from tuner.space.candidate import Candidate
from tuner.spec.slo import tail_shares

#: A soak lasts this many relaxation times of the latency, if the spec allows: a hundred independent
#: requests give a p99 within 20%.
RELAXATIONS = 200.0
#: The first soak's load as a share of the mean capacity by the rounds. Simulated: with 0.95, too
#: many credited loads are false where the SLO is 10 service times of a queue; with 0.90, no credit
#: is above 0.88 of the capacity.
OF_MEAN = 0.93
#: Most soaks of one config.
MOST_SOAKS = 8
#: A miss with this many times the late requests that the SLO allows counts despite disturbances.
FAR_BEYOND = 5.0


def first_level(contender: Contender, rules: ProofRules) -> float:
    """The first soak's load: where rates are searched, `OF_MEAN` of the mean capacity; else listed.

    It is at most the highest load that a round sustained, since a higher capacity is extrapolated.

    Raises:
        ValueError: The config has no round.
    """
    if rules.plan.searches_rates:
        level = OF_MEAN * geometric_mean(contender.levels())
        sustained = [p.level for p in contender.points if p.passed]
        return rules.plan.levels.nearest(min(level, max(sustained, default=level)))
    return min(p.level for p in contender.points)


def soak(
    measured: MeasuredOnce,
    candidate: Candidate,
    rounds: Contender,
    level: float,
    rules: ProofRules,
    note: Callable[[str], None],
    *,
    at_most: int = MOST_SOAKS,
    least: float = 0.0,
    is_late: Callable[[], bool] = lambda: False,
) -> Soak:
    """Soaks a config at ``level``, then at lower loads until one is sustained.

    Where the sustained load is far below the lowest that missed, one load between them is soaked
    (`next_soak.py`). The last soak in the result is that of the highest sustained load, if any.

    Args:
        candidate: The config; each soak starts a fresh server.
        rounds: The rounds of the config, or of the one that it replaces.
        level: The first load, see `first_level`.
        note: Receives a sentence about each soak.
        at_most: Most loads that may fail.
        least: No lower load than this is soaked, since none is a gain.
        is_late: Whether the time is over: then at most `FEWEST_SOAKS` loads are soaked.

    Raises:
        TrialError: The config could not be served, or a load gave no result.
    """

    def put(load: float, number: int) -> Soaked:
        point = _soak_once(measured, candidate, load, rules, remembers_s, number)
        point_s = max(remembers_s, relaxation_s([point]))  # longer than at a lower load, if missed
        late = measured_late_share(point.measurement, rules.slos, point_s)
        excuse = _excuse(point, late, rules)
        note((soaked := Soaked(point.measurement, point.slo, late, excuse)).sentence)
        return soaked

    windows = [p for r in rounds.rounds for p in r.points if p.passed or is_near(p)]
    remembers_s = relaxation_s(windows)
    tried, behind, failed = list[Soaked](), list[Reason](), list[Probe]()
    lower: float | None = level
    while lower is not None and len(failed) < at_most:
        try:
            tried.append(put(lower, len(failed)))
        except ClientLimitError as error:
            behind.append(error.reason)
            note(error.message)
            failed.append(NoResult(lower, error.sent_per_s))
        else:
            point = tried[-1].point
            if point.outcome is not SloOutcome.MISSED:
                break  # a lower load has even fewer answers
            failed.append(point)
        if len(failed) >= FEWEST_SOAKS and is_late():
            break
        lower = lower_load(failed, tried, rounds, rules, least)
    if at_most > 1 and not is_late():
        _try_higher(put, tried, len(failed) + 1, rules, note)
    return _credited(tried, behind, rounds, rules)


def _try_higher(
    put: Callable[[float, int], Soaked],
    tried: list[Soaked],
    number: int,
    rules: ProofRules,
    note: Callable[[str], None],
) -> None:
    """Soaks once between the sustained load and those that missed, if `higher_load` gives one.

    The last of ``tried`` remains a sustained one.
    """
    higher = higher_load(tried, rules)
    if higher is None:
        return
    try:
        above = put(higher, number)
    except TrialError as error:  # the lower load is credited
        note(error.message)
    else:
        tried.insert(len(tried) - (not above.sustained), above)


def _credited(
    tried: Sequence[Soaked], behind: Sequence[Reason], rounds: Contender, rules: ProofRules
) -> Soak:
    headroom = 0.0
    if tried and tried[-1].sustained and rules.plan.searches_rates:
        sustained = tried[-1].level
        sure = min(sustained, surely_sustained(tried, rounds, rules))
        headroom = 1.0 - sure / sustained * (1.0 - float(rules.confirm.headroom))
    return Soak(tuple(tried), unknown_by(tried, behind), tuple(behind), headroom)


def _soak_once(
    measured: MeasuredOnce,
    candidate: Candidate,
    level: float,
    rules: ProofRules,
    remembers_s: float,
    number: int,
) -> Point:
    """One soak with arrivals of its number; repeated once where it gives no result."""

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


def relaxation_s(points: Sequence[Point]) -> float:
    """The longest relaxation time of the latency in any window, in seconds; 0 without any."""
    courses = (p.measurement.course for p in points)
    return max((c.relaxation_s for c in courses if c is not None), default=0.0)


def _excuse(point: Point, late: LateShare | None, rules: ProofRules) -> Reason | None:
    """The disturbances, where these may explain why an SLO was missed; else None.

    The share of late requests counts over the full length of a soak, as if one that ended early had
    had no further late requests.
    """
    if point.outcome is not SloOutcome.MISSED or saturated(point):
        return None
    allowed = max((1.0 - share for share in tail_shares(rules.slos)), default=0.0)
    part = min(point.measurement.duration_s / max(float(rules.confirm.soak), 1e-9), 1.0)
    if late is not None and part * late.share > FAR_BEYOND * allowed:
        return None
    disturbances = point.measurement.disturbances
    return Reason(ReasonKind.DISTURBED, causes=disturbances) if disturbances else None


def least_gain_level(race: RoundsResult, winner: Contender, rules: ProofRules) -> float:
    """The least load that may be a gain over the current config; 0 where its capacity is unknown.

    The load that the current config sustains in a soak may be a step (`NEXT_SHARE`) below its
    capacity by the rounds.
    """
    if not rules.plan.searches_rates or rules.objective.metric is not None:
        return 0.0
    compared = winner.candidate in race.ratios
    now = race.current.expected_level() if compared else race.current.entrant.at_most
    return NEXT_SHARE * rules.confirm.least_ratio * now if math.isfinite(now) else 0.0


def lowered_share(proved: ProvedConfig, level: float) -> float:
    """The sustained load as a share of ``level``, the first soak's load; 1 without a soak."""
    return 1.0 if proved.sustained is None else proved.sustained.level / level


def surely_less(
    race: RoundsResult,
    winner: Contender,
    baseline: ProvedConfig | None,
    proved: ProvedConfig,
    rules: ProofRules,
    level: float,
) -> bool:
    """Whether search and rounds show that the current config sustains less than the winner.

    Rounds that ended before any look do not, where soaks are made: they started too few servers.

    ``level``: the load of the winner's first soak.
    """
    ratio = race.ratios.get(winner.candidate)
    if ratio is None and race.current.rounds:
        return not float(rules.confirm.soak)
    if ratio is None or rules.looks is not None:  # looks judge no SLO
        return FAR * race.current.entrant.at_most <= proved.credited_level
    now = None if baseline is None else baseline.credited_infer_per_s
    then = proved.credited_infer_per_s
    more = rules.objective.metric is not None or now is None or then is None or now < then
    enough, lowered = rules.confirm.least_ratio, lowered_share(proved, level)
    return more and ratio.low * lowered > 1.0 and ratio.estimate * lowered >= enough
