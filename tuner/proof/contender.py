"""One config in the rounds of a proof: what a round measures, and what the rounds show.

Where loads are searched, a round measures one load just below the expected capacity and one just
above it, and gives a capacity. For slow models a round is a look: it gives the throughput of the
saturated config. Where the spec lists the loads, a round gives the throughput under one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, geometric_mean

from tuner.errors import ClientLimitError, LoadFailedError, TrialError
from tuner.load import seeds
from tuner.load.watch.machine import taken_percent
from tuner.meter.evaluate import ClientCeiling, MeasureOrLower
from tuner.proof.compare import Side, Tail
from tuner.proof.entrants import Entrant, Looks, ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.reason import Reason
from tuner.record.confirmation import Role, Soak
from tuner.record.proved import ProvedConfig
from tuner.score.capacity import (
    WIDE,
    Bracket,
    LevelRange,
    NoResult,
    Probe,
    capacity_by_power,
    capacity_level,
    is_near,
    steepness,
)
from tuner.score.judge import SloOutcome, outcome_of_rounds, value_of
from tuner.score.next_load import StepRule, next_load
from tuner.score.point import Point
from tuner.space.candidate import Candidate

#: A round measures this share below the expected capacity, and the same share above it. With a
#: smaller share the two utilisations differ by little more than their noise; with a larger one the
#: utilisation is no straight line between them.
SPREAD = 0.04
#: The step from the first of the two loads to the second: smaller downward, after a failure.
STEPS = StepRule(first=2 * SPREAD, least=SPREAD, close=0.85, wide=WIDE)
#: Most loads in one round: where the search erred by more than `SPREAD`, two are not enough.
MOST_LOADS = 5
#: The two extreme powers for `capacity_by_power`, and the share by which their capacities may
#: differ: if they differ by more, a load between the two is measured.
SHAPES, BEND = (-0.01, -2.0), 0.01


@dataclass(frozen=True)
class Round:
    """One round of one config: its measurements, in their order.

    Attributes:
        points: The measurements near the expected capacity, or at the listed load; none in a look.
        no_result_at: Levels above one that passed that gave no result: they count as missed.
        limit: The highest level that the load generator could send, where the config sustained
            it; else infinite.
        look: The measurement of the saturated config, in a round of a slow model.
    """

    points: tuple[Point, ...] = ()
    no_result_at: tuple[float, ...] = ()
    limit: float = math.inf
    look: Point | None = None

    @property
    def probes(self) -> list[Probe]:
        return [*self.points, *map(NoResult, self.no_result_at)]

    @property
    def disturbed(self) -> bool:
        """Whether any measurement of the round was disturbed."""
        return any(p.measurement.disturbances for p in self.points)

    @property
    def unseen(self) -> float:
        """Logarithm of the higher over the lower of the loads that enclose the capacity.

        0 where a load shows latencies near their bound, or none above the capacity was measured.
        """
        gap = Bracket.of(self.probes).gap
        return 0.0 if any(map(is_near, self.points)) or math.isinf(gap) else math.log1p(gap)

    @property
    def top(self) -> float:
        """Upper bound on the capacity, as a level; infinite where the round shows none.

        Where every level missed, the second lowest: a single miss may be chance.
        """
        bracket = Bracket.of(self.probes)
        if bracket.floor is not None:
            return bracket.top
        missed = sorted(p.level for p in self.probes if p.outcome is SloOutcome.MISSED)
        return missed[1] if len(missed) > 1 else math.inf

    @property
    def sustained(self) -> Point:
        """The measurement at the highest level that met every SLO; if none did, at the lowest.

        A look judges no SLO: its one measurement.
        """
        if self.look is not None:
            return self.look
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
        entrant: The config, with what the search knows about it.
        left: Why the config takes part in no further round; None while it does.
        unmeasured: The config left without a verdict: no result, or too few answers.
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
        """The sustained measurement of each round; of looks, the judged one of the search."""
        if self.looked_at and self.entrant.seen is not None:
            return (self.entrant.seen,)
        return tuple(r.sustained for r in self.rounds)

    @property
    def looked_at(self) -> bool:
        """Whether the rounds are looks, which compare throughputs and judge no SLO."""
        return any(r.look is not None for r in self.rounds)

    @property
    def outcome(self) -> SloOutcome:
        """Whether the config met the SLOs at some load, in at least half of its rounds."""
        return outcome_of_rounds([p.outcome for p in self.points])

    @property
    def limited(self) -> bool:
        """Whether the config sustained the most that the load generator can send."""
        return any(r.limit < math.inf for r in self.rounds)

    def levels(self) -> list[float]:
        """The capacity by each round, as a level: see `capacity_level`."""
        if self.looked_at:
            return [self.entrant.level] * len(self.rounds)
        slope = steepness([r.probes for r in self.rounds])
        return [min(capacity_level(r.probes, slope), r.limit) for r in self.rounds]

    def expected_level(self) -> float:
        """The mean capacity by the rounds that determine one, as a level.

        Disturbed rounds count only where all rounds were disturbed. The capacity by the search then
        counts too, else the next round may start so far below the capacity that it does not reach
        it.
        """
        if self.looked_at:
            return self.entrant.level
        passed = [x for x in zip(self.rounds, self.levels(), strict=True) if x[0].sustained.passed]
        ended = [
            x for x in passed if len(x[0].probes) < MOST_LOADS or Bracket.of(x[0].probes).ceiling
        ]
        calm = [v for r, v in ended if not r.disturbed]
        levels = calm or [v for _, v in ended]
        if levels and not calm:
            levels.append(self.entrant.level)
        highest = max((v for _, v in passed), default=self.entrant.level)
        return geometric_mean(levels) if levels else highest

    def readings(self, rules: ProofRules) -> list[float]:
        """One value per round by which configs are compared; a higher value is better.

        Inferences per second at the capacity, or of the saturated config where rounds are looks;
        for a metric that is minimised, one over its value.

        Raises:
            TrialError: The metric was not measured in every round.
        """
        metric = rules.objective.metric
        if self.looked_at:
            return [r.sustained.measurement.throughput_infer_per_s for r in self.rounds]
        if metric is None:
            return [_served(r, v) for r, v in zip(self.rounds, self.levels(), strict=True)]
        read = [value_of(metric, p.measurement) for p in self.points]
        values = [v for v in read if v is not None and v > 0.0]
        if len(values) < len(read):
            raise TrialError(f"{metric.name} was not measured in every round")
        return [1.0 / v for v in values]

    def proved(self, candidate: Candidate | None = None, soak: Soak | None = None) -> ProvedConfig:
        """The record of the config, or of the simpler ``candidate`` in its place, with its soak."""
        return ProvedConfig.of(
            candidate or self.candidate,
            self.points,
            soak=soak,
            at_least=self.limited,
            from_search=self.looked_at,
        )

    def side(self, rules: ProofRules) -> Side:
        taken = [
            fmean(taken_percent(p.measurement) for p in r.points or [r.sustained])
            for r in self.rounds
        ]
        unseen = fmean(r.unseen for r in self.rounds) if rules.compares_capacities else 0.0
        return Side(self.readings(rules), taken, self._tail(rules), unseen)

    def _tail(self, rules: ProofRules) -> Tail | None:
        """The latencies near the capacity; None where the rounds do not compare capacities."""
        if not rules.compares_capacities:
            return None
        near = [p.limiting for r in self.rounds for p in r.points if is_near(p)]
        known = [f for f in near if f.p50_latency_us > 0.0]
        if not known:
            return None
        spreads = (math.log(f.p99_latency_us / f.p50_latency_us) for f in known)
        return Tail(fmean(spreads), max(fmean(f.completed_count for f in known), 1.0))


def measure_round(
    measured: MeasuredOnce,
    contender: Contender,
    rules: ProofRules,
    number: int,
    role: Role,
    at: float | None = None,
) -> Point:
    """Adds one round of a config, on a fresh server.

    Args:
        number: The round's number, from 0.
        at: A level to measure before the round, on the same server; it does not count in the round.

    Returns:
        The measurement at ``at``; without ``at``, the sustained measurement of the round.

    Raises:
        TrialError: The config could not be served, no load gave a result, or a result lacks the
            metric by which configs are compared.
    """

    def one(measure: Callable[[float], Point]) -> Round:
        if at is not None:
            measured_points.append(measure(at))
        if rules.plan.listed is not None:
            return Round((measure(contender.entrant.level),))
        expected, sendable = contender.expected_level(), measured.bench.sendable
        return _around(measure, expected, rules.plan.levels, sendable)

    measured_points: list[Point] = []
    place = contender.candidate, role, number
    if rules.looks is None:
        round_ = measured.on_fresh_server(*place, rules.seed + number, one)
    else:
        seed = seeds.of_looks(rules.seed) + number
        round_ = look_at(measured, *place, seed, rules.looks)
    Contender(contender.entrant, [round_]).readings(rules)  # raises where there is none
    contender.rounds.append(round_)
    return measured_points[-1] if measured_points else round_.sustained


def look_at(
    measured: MeasuredOnce, candidate: Candidate, role: Role, number: int, seed: int, looks: Looks
) -> Round:
    """One look: a round that measures the throughput of a saturated config, on a fresh server.

    Raises:
        TrialError: The config could not be served, or gave no result.
    """
    return measured.on_fresh_server(
        *(candidate, role, number, seed),
        lambda measure: Round(look=measure(looks.in_flight)),
        look_s=looks.length_s,
    )


def _around(
    measure: Callable[[float], Point], expected: float, levels: LevelRange, sendable: ClientCeiling
) -> Round:
    """Measures one load below the expected capacity and one above it.

    Further loads follow where these do not enclose the capacity, at most `MOST_LOADS`.
    """
    levels = levels.below(sendable.most)
    above, points, no_result_at = MeasureOrLower(measure, levels), list[Point](), list[float]()
    level: float | None = levels.nearest(expected * (1.0 - SPREAD))
    while level is not None and len(points) + len(no_result_at) < MOST_LOADS:
        try:
            points.append(measure(level))
        except (ClientLimitError, LoadFailedError) as error:
            is_sendable = level <= sendable.sent and any(p.passed for p in points)
            if isinstance(error, ClientLimitError) and not is_sendable:
                level = above.lower(error, level)  # the limit of the load generator
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
    """The likely capacity; None where any shape of the curve gives about the same."""
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
        return sustained.throughput_infer_per_s  # no point above, or fewer clients got more
    share = min(max(math.log(level / below.level) / math.log1p(bracket.gap), 0.0), 1.0)
    more = above.measurement.throughput_infer_per_s / sustained.throughput_infer_per_s
    return float(sustained.throughput_infer_per_s * more**share)
