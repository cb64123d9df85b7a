"""Configs measured in rounds: in each, every config on a fresh server, under the same arrivals.

Where loads are searched, a round measures just below and just above what the config should sustain,
and gives its capacity. Where the spec lists the loads, it is the throughput under one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from statistics import fmean, geometric_mean
from typing import assert_never

from tuner.bench.evaluate import ClientCeiling, MeasureOrLower
from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError, TrialError
from tuner.load.watch.machine import taken_percent
from tuner.proof.compare import Side, compare
from tuner.proof.decide import Look, LookResult, answer, look_after
from tuner.proof.entrants import Entrant, ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.reason import Reason, ReasonKind
from tuner.record.confirmation import Role
from tuner.score.capacity import (
    WIDE,
    Bracket,
    LevelRange,
    NoResult,
    Probe,
    capacity_by_power,
    capacity_level,
    steepness,
)
from tuner.score.judge import SloOutcome, outcome_of_rounds, too_few_text, value_of
from tuner.score.next_load import StepRule, next_load
from tuner.score.point import Point
from tuner.score.ratio import Ratio
from tuner.sentences import failed
from tuner.space.candidate import Candidate

#: A round measures this share below the expected capacity, and as far above it. Nearer, the two
#: utilisations differ by little more than their noise; farther, the line between them bends.
SPREAD = 0.04
#: From one of the two loads to the other, and less far down where the first one failed.
STEPS = StepRule(first=2 * SPREAD, least=SPREAD, close=0.85, wide=WIDE)
#: Most loads in one round: where the search was wrong by more than `SPREAD`, two do not do.
MOST_LOADS = 5
#: Powers of the flattest and the steepest line between two utilisations, and the share by which the
#: capacities on them may differ, else a load between the two is measured.
SHAPES, BEND = (-0.01, -2.0), 0.01


@dataclass(frozen=True)
class Round:
    """One round of one config: its measurements, in their order.

    Attributes:
        no_result_at: Loads that gave no result, above one that passed: too much for it.
        limit: All that the load generator could send, where it sustained that; else infinite.
    """

    points: tuple[Point, ...]
    no_result_at: tuple[float, ...] = ()
    limit: float = math.inf

    @property
    def probes(self) -> list[Probe]:
        return [*self.points, *map(NoResult, self.no_result_at)]

    @property
    def sustained(self) -> Point:
        """At the highest level that met every SLO; the lowest level tried when none did."""
        floor = Bracket.of(self.points).floor
        if floor is None:
            return min(self.points, key=lambda p: p.level)
        if floor.served_per_s is not None:
            return next(p for p in self.points if p is floor)
        good = (p for p in self.points if p.passed)
        return max(good, key=lambda p: p.measurement.throughput_infer_per_s)


@dataclass
class Contender:
    """A config with its rounds so far.

    Attributes:
        left: Why it takes part in no more of them; None while it does.
        unmeasured: It left because no result came, which says nothing of what it sustains.
    """

    entrant: Entrant
    rounds: list[Round] = field(default_factory=list)
    left: Reason | None = None
    unmeasured: bool = False

    @property
    def candidate(self) -> Candidate:
        return self.entrant.candidate

    @property
    def points(self) -> tuple[Point, ...]:
        return tuple(r.sustained for r in self.rounds)

    @property
    def outcome(self) -> SloOutcome:
        """Whether it met the SLOs at some load of its rounds."""
        return outcome_of_rounds([p.outcome for p in self.points])

    @property
    def limited(self) -> bool:
        """It sustained all that the load generator could send: its capacity may be higher."""
        return any(r.limit < math.inf for r in self.rounds)

    def levels(self) -> list[float]:
        """For each round the load at which an SLO begins to be missed, see `capacity_level`."""
        slope = steepness([r.probes for r in self.rounds])
        return [min(capacity_level(r.probes, slope), r.limit) for r in self.rounds]

    def expected_level(self) -> float:
        """Its mean capacity, by the rounds that found one."""
        passed = [x for x in zip(self.rounds, self.levels(), strict=True) if x[0].sustained.passed]
        found = [v for r, v in passed if len(r.probes) < MOST_LOADS or Bracket.of(r.probes).ceiling]
        highest = max((v for _, v in passed), default=self.entrant.level)
        return geometric_mean(found) if found else highest

    def readings(self, rules: ProofRules) -> list[float]:
        """One value a round, more is better: what the configs are compared by.

        Inferences per second, or one over the metric that is minimised.

        Raises:
            TrialError: The metric was not measured in every round.
        """
        metric = rules.objective.metric
        if metric is None:
            return [_served(r, v) for r, v in zip(self.rounds, self.levels(), strict=True)]
        found = [value_of(metric, p.measurement) for p in self.points]
        values = [v for v in found if v is not None and v > 0.0]
        if len(values) < len(found):
            raise TrialError(f"{metric.name} was not measured in every round")
        return [1.0 / v for v in values]

    def side(self, rules: ProofRules) -> Side:
        taken = [fmean(taken_percent(p.measurement) for p in r.points) for r in self.rounds]
        return Side(self.readings(rules), taken)


def measure_round(
    measured: MeasuredOnce,
    contender: Contender,
    rules: ProofRules,
    number: int,
    role: Role,
    at: float | None = None,
) -> Point:
    """Adds one round of a config, on a fresh server; the point at ``at``, or what it sustained.

    ``at``: a load that is measured first, and is no part of the round.

    Raises:
        TrialError: The config could not be served, or no load that it should sustain gave a result,
            or one without what the configs are compared by.
    """

    def one(measure: Callable[[float], Point]) -> Round:
        if at is not None:
            held.append(measure(at))
        if rules.plan.listed is not None:
            return Round((measure(contender.entrant.level),))
        expected, sendable = contender.expected_level(), measured.bench.sendable
        return _around(measure, expected, rules.plan.levels, sendable)

    held: list[Point] = []
    found = measured.on_fresh_server(contender.candidate, role, number, rules.seed + number, one)
    Contender(contender.entrant, [found]).readings(rules)  # raises where there is none
    contender.rounds.append(found)
    return held[-1] if held else found.sustained


def _around(
    measure: Callable[[float], Point], expected: float, levels: LevelRange, sendable: ClientCeiling
) -> Round:
    """One load below the expected capacity and one above; further ones until one passes."""
    levels = levels.below(sendable.most)
    above, points, no_result_at = MeasureOrLower(measure, levels), list[Point](), list[float]()
    level: float | None = levels.nearest(expected * (1.0 - SPREAD))
    while level is not None and len(points) + len(no_result_at) < MOST_LOADS:
        try:
            points.append(measure(level))
        except (ClientLimitError, LoadFailedError) as error:
            own = level <= sendable.sent and any(p.passed for p in points)
            if isinstance(error, ClientLimitError) and not own:
                level = above.lower(error, level)  # not the config's doing
                if any(p.passed and p.level >= level for p in points):
                    break
                continue
            if not any(p.passed for p in points):
                raise
            no_result_at.append(level)
        probes: list[Probe] = [*points, *map(NoResult, no_result_at)]
        level = next_load(probes, above.levels, STEPS) or _where_it_bends(probes, above.levels)
    return Round(tuple(points), tuple(no_result_at), above.levels.limit(points))


def _where_it_bends(probes: Sequence[Probe], levels: LevelRange) -> float | None:
    """The likely capacity; None where lines of any shape put it at about one place."""
    bracket = Bracket.of(probes)
    floor, ceiling = bracket.floor, bracket.ceiling
    if floor is None or ceiling is None:
        return None
    flat, steep = (min(capacity_by_power(floor, ceiling, power), bracket.top) for power in SHAPES)
    if abs(steep / flat - 1.0) <= BEND:
        return None
    level = levels.nearest(min(capacity_by_power(floor, ceiling), bracket.top))
    return None if any(p.level == level for p in probes) else level


def _served(round_: Round, level: float) -> float:
    """Inferences per second at the capacity of a round."""
    sustained = round_.sustained.measurement
    if sustained.load.arrivals.open_loop:
        return level * sustained.batch_size
    bracket = Bracket.of(round_.points)
    floor, ceiling = bracket.floor, bracket.ceiling
    below, above = (next((p for p in round_.points if p is b), None) for b in (floor, ceiling))
    if below is None or above is None or below.measurement is not sustained:
        return sustained.throughput_infer_per_s  # fewer clients got more, or no result above
    share = min(max(math.log(level / below.level) / math.log1p(bracket.gap), 0.0), 1.0)
    more = above.measurement.throughput_infer_per_s / sustained.throughput_infer_per_s
    return float(sustained.throughput_infer_per_s * more**share)


def in_turn(sides: Sequence[Contender], number: int) -> list[Contender]:
    """The order of a round: it is turned and reversed, so that a drift favours no side."""
    first = number // 2 % len(sides)
    turned = [*sides[first:], *sides[:first]]
    return turned if number % 2 == 0 else turned[::-1]


@dataclass(frozen=True)
class RoundsResult:
    """What the rounds showed.

    Attributes:
        finalists: In the order they came in.
        ratios: Of each finalist to the current config, as of its last look.
        better: Those shown to be better, the best first.
        no_gain: No finalist has a gain that is worth a change, by its estimate.
    """

    current: Contender
    finalists: tuple[Contender, ...]
    ratios: Mapping[Candidate, Ratio]
    better: tuple[Contender, ...] = ()
    no_gain: bool = False


def run_rounds(
    measured: MeasuredOnce,
    current: Entrant,
    finalists: Sequence[Entrant],
    rules: ProofRules,
    late: Callable[[], bool],
    round_over: Callable[[str, Contender], None],
) -> RoundsResult:
    """Rounds of the current config and the finalists, until a look at them decides.

    Args:
        late: Whether the time for rounds is over.
        round_over: Receives the round's name and the config, after each of its rounds.

    Raises:
        TrialError: The current config cannot be measured.
    """
    now, others = Contender(current), [Contender(f) for f in finalists]
    ratios: dict[Candidate, Ratio] = {}
    for number in count() if rules.continued else range(int(rules.confirm.rounds)):
        racing = [f for f in others if not f.left]
        for side in in_turn([now, *racing], number):
            role = Role.CURRENT if side is now else Role.CANDIDATE
            add_round(measured, side, rules, number, role, round_over)
        racing = [f for f in racing if not f.left]
        if not racing:
            break
        time_is_over = late()
        look = look_after(number + 1, rules.confirm.rounds, len(finalists), late=time_is_over)
        if look is None:
            continue
        for finalist in racing:
            leave_unless_met(finalist)
        racing = [f for f in racing if not f.left]
        if not racing:
            break
        if _is_undecided(now, look):
            continue
        if now.outcome is SloOutcome.MISSED and not rules.plan.searches_rates:
            racing.sort(key=lambda f: -geometric_mean(f.readings(rules)))
            return RoundsResult(now, tuple(others), {}, tuple(racing))
        found = {f.candidate: _ratio(f, now, racing, rules, look.error) for f in racing}
        ratios |= found
        least = float(rules.confirm.min_gain)
        answers = {candidate: answer(ratio, least) for candidate, ratio in found.items()}
        better = [f for f in racing if answers[f.candidate] is LookResult.BETTER]
        better.sort(key=lambda f: -found[f.candidate].estimate)
        none_left = set(answers.values()) == {LookResult.NO_GAIN}
        if better or none_left or (look.last and (time_is_over or not rules.continued)):
            no_gain = none_left and not any(f.unmeasured for f in others)
            return RoundsResult(now, tuple(others), ratios, tuple(better), no_gain)
        _leave(racing, found, answers, rules, look.error)
    return RoundsResult(now, tuple(others), ratios)


def _is_undecided(current: Contender, look: Look) -> bool:
    """Whether the current config has too few answers so far to be compared with.

    Raises:
        TrialError: More rounds would not help, or there are none.
    """
    few = current.outcome is SloOutcome.TOO_FEW
    if few and (look.last or not any(p.passed for p in current.points)):
        raise failed(TrialError, _too_few(current))
    return few


def add_round(
    measured: MeasuredOnce,
    side: Contender,
    rules: ProofRules,
    number: int,
    role: Role,
    round_over: Callable[[str, Contender], None],
) -> None:
    """One more round of a config, which leaves where it cannot be measured.

    Raises:
        TrialError: The current config cannot be measured.
    """
    try:
        measure_round(measured, side, rules, number, role)
    except TrialError as error:
        if role is Role.CURRENT:
            raise
        side.left = error.reason
        no_result = isinstance(error, (ClientLimitError, LoadFailedError))
        side.unmeasured = no_result and not isinstance(error, ModelFailsError)
        return
    round_over(f"round {number + 1}", side)


def leave_unless_met(finalist: Contender) -> None:
    """A finalist that met the SLOs at no load of most of its rounds takes part in no more."""
    match finalist.outcome:
        case SloOutcome.MET:
            pass
        case SloOutcome.MISSED:
            finalist.left = Reason(ReasonKind.MISSED_AGAIN)
        case SloOutcome.TOO_FEW:
            finalist.left, finalist.unmeasured = _too_few(finalist), True
        case _:
            assert_never(finalist.outcome)


def _too_few(side: Contender) -> Reason:
    """`too few answers (290 of 299) for a verdict at 6 concurrent, when measured again`."""
    point = next(p for p in side.points if p.outcome is SloOutcome.TOO_FEW)
    facts = {"lacking": too_few_text(point.slo), "load": str(point.measurement.load)}
    return Reason(ReasonKind.TOO_FEW_AGAIN, facts=facts)


def _ratio(
    own: Contender,
    other: Contender,
    racing: Sequence[Contender],
    rules: ProofRules,
    error: float,
) -> Ratio:
    """The ratio by the rounds that all had; a limit of the load generator leaves it open."""
    one, two = own.side(rules), other.side(rules)
    if other.limited:  # what it may sustain beyond is not known
        one = replace(one, values=[min(pair) for pair in zip(one.values, two.values, strict=True)])
    ratio = compare(one, two, error, [f.side(rules) for f in racing if f not in (own, other)])
    return replace(ratio, high=math.inf) if own.limited else ratio


def _leave(
    racing: Sequence[Contender],
    found: Mapping[Candidate, Ratio],
    answers: Mapping[Candidate, LookResult],
    rules: ProofRules,
    error: float,
) -> None:
    """A finalist without a gain, or that another one surely beats, takes part in no more rounds."""
    best = max(racing, key=lambda f: found[f.candidate].estimate)
    for finalist in racing:
        if answers[finalist.candidate] is LookResult.NO_GAIN:
            ratio = {"ratio": float(found[finalist.candidate].estimate)}
            finalist.left = Reason(ReasonKind.SMALLER_GAIN, facts=ratio)
        elif finalist is best or best.limited:
            continue
        elif _ratio(finalist, best, racing, rules, error).high < 1.0:
            finalist.left = Reason(ReasonKind.BEATEN)
