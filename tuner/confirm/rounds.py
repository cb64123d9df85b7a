"""One config in the confirmation: what it sustained in each round, on a fresh server each time.

Where loads are searched, a round gives two things: the level that *met every SLO* (the proof), and
the capacity (the comparison), which is far finer than the distance between the levels.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean, geometric_mean

from tuner.bench.again import Attempts
from tuner.bench.evaluate import FromAbove
from tuner.bench.protocol import Bench
from tuner.errors import ClientLimitError, LoadFailedError
from tuner.load.watch.machine import OTHER_CPU_PERCENT, taken_percent
from tuner.run.confirmation import Repeat, Role
from tuner.score.capacity import (
    WIDE,
    Bracket,
    LevelRange,
    NoResult,
    Probe,
    capacity_level,
    chord,
    is_near,
    saturated,
    steepness,
)
from tuner.score.next_load import Steps, next_load
from tuner.score.point import Point
from tuner.space.candidate import Candidate

_logger = logging.getLogger(__name__)

#: A round measures this share below the expected capacity, and as far above it.
SPREAD = 0.04
#: A round may end without a failed level nearby once this much of the bound was used up.
CLOSE = 0.85
#: From the load below the expected capacity to the one above it, and less far down.
ROUND = Steps(first=2 * SPREAD, least=SPREAD, close=CLOSE, wide=WIDE)
ROUGH = Steps(first=4 * SPREAD, least=2 * SPREAD, close=CLOSE, wide=math.inf)
#: Most measurements in one round.
MOST_STEPS = 6
#: The flattest and the steepest line considered, and the difference between the capacities they
#: give, as a share, above which another measurement is made in between.
SHAPES = (-0.01, -2.0)
STRAIGHT = 0.01


@dataclass(frozen=True)
class Row:
    """A `Repeat` with the config that was measured."""

    round: int
    order: int
    role: Role
    candidate: Candidate
    point: Point

    @property
    def kept(self) -> Repeat:
        return Repeat(self.round, self.order, self.role, self.candidate.key, self.point)


@dataclass
class Rounds:
    """Measures configs in rounds: each on a fresh server, all of a round with the same arrivals.

    Attributes:
        seed: Of the first round's arrivals; later rounds count up.
    """

    bench: Bench
    seed: int
    record: Callable[[Row], None]
    _made: Counter[int] = field(default_factory=Counter)

    def measure(
        self,
        number: int,
        role: Role,
        candidate: Candidate,
        search: Callable[[Callable[[float], Point]], Round],
        *,
        least_s: float = 0.0,
        arrivals: int | None = None,
    ) -> Round:
        """One round of one config, as ``search`` makes it of a function that measures a level.

        ``arrivals``: the round whose arrivals it has; None: its own, ``number``.
        """
        seed = self.seed + (number if arrivals is None else arrivals)
        points: list[Point] = []

        def measure(level: float) -> Point:
            points.append(self.bench.measure(level, seed, least_s))
            return points[-1]

        try:
            for attempt in Attempts(partial(_logger.warning, "round %d: %s", number + 1)):
                with attempt:
                    points.clear()  # those of a server that died are in no round
                    self.bench.deploy(candidate, fresh=True)
                    found = search(measure)
            return found
        finally:
            for point in points:
                self.record(Row(number, self._made[number], role, candidate, point))
                self._made[number] += 1


@dataclass(frozen=True)
class Entrant:
    """A config and where to begin.

    Attributes:
        level: The load it sustained in the search, or should sustain; None when it met no SLO.
        sustained: It met every SLO at some load in the search.
        window_s: Length of the windows its claim needs, where it is known to need longer ones.
    """

    candidate: Candidate
    level: float | None
    sustained: bool = True
    window_s: float = 0.0


@dataclass(frozen=True)
class Round:
    """One round of one config: its measurements, in the order they were made.

    Attributes:
        fixed: Measured at the one load that the spec lists; it gives no capacity.
        drowned: Levels that gave no result, above one that passed: too much for it.
        missed: Its one load is certainly not sustained; what it does sustain was not searched.
        limit: All that the load generator could send, where it sustained that; else infinite.
    """

    points: tuple[Point, ...]
    fixed: bool = False
    drowned: tuple[float, ...] = ()
    missed: bool = False
    limit: float = math.inf

    @property
    def taken_percent(self) -> float:
        """Percent of the machine that others took meanwhile, in the mean of its measurements."""
        return fmean(taken_percent(p.measurement) for p in self.points)

    @property
    def probes(self) -> list[Probe]:
        return _probes(self.points, self.drowned)

    @property
    def sustained(self) -> Point:
        """At the highest level that met every SLO; the lowest level tried when none did.

        Of a closed loop at the level that met them with the highest throughput.
        """
        floor = Bracket.of(self.probes).floor
        by_level = {p.level: p for p in self.points}
        if floor is None:
            return by_level[min(by_level)]
        if floor.served_per_s is not None:
            return by_level[floor.level]
        good = (p for p in self.points if p.passed)
        return max(good, key=lambda p: p.measurement.throughput_infer_per_s)

    @property
    def passed(self) -> bool:
        return self.sustained.passed

    @property
    def compares(self) -> bool:
        """Whether it shows what the config sustains, or what it does not."""
        return self.passed or self.missed

    @property
    def bounded(self) -> bool:
        """Whether it saw an upper limit: a level failed, or used up nearly all of a bound.

        A round has a limited number of steps. It may end below the capacity of a config that was
        expected to sustain far less.
        """
        bracket = Bracket.of(self.probes)
        if bracket.ceiling is None and bracket.floor is not None:
            return (bracket.floor.slo_utilisation or 0.0) >= CLOSE
        return True


def disturbed_alike(one: Round, other: Round) -> bool:
    """Whether others took about as much of the machine beside each: else they do not compare."""
    return abs(one.taken_percent - other.taken_percent) <= OTHER_CPU_PERCENT


@dataclass
class Contender:
    """A config with its rounds so far.

    Attributes:
        dropped: Why it takes no further part; empty while it does.
        slope: Of a config much like it, for rounds too short to tell their own (`steepness`).
        outclassed: It is so far behind that it is measured in no further rounds.
        window_s: Its measurements are at least so long.
    """

    entrant: Entrant
    rounds: list[Round] = field(default_factory=list)
    dropped: str = ""
    slope: float | None = None
    outclassed: bool = False
    window_s: float = 0.0

    @property
    def candidate(self) -> Candidate:
        return self.entrant.candidate

    @property
    def points(self) -> tuple[Point, ...]:
        return tuple(r.sustained for r in self.rounds)

    @property
    def credited_level(self) -> float:
        """The load that met every SLO in every round, and no more than was answered of it."""
        return min(_answered(r) for r in self.rounds)

    @property
    def at_most(self) -> bool:
        """Its capacities are loads that it does not sustain."""
        return any(r.missed for r in self.rounds)

    @property
    def limited(self) -> bool:
        """It sustained all that the load generator could send: its capacity may be higher."""
        return any(r.limit < math.inf for r in self.rounds)

    def levels(self) -> list[float]:
        """For each round the level at which an SLO begins to be missed, or one above that."""
        slope = self.steepness()
        return [
            r.points[0].level if r.missed else min(capacity_level(r.probes, slope), r.limit)
            for r in self.rounds
        ]

    def steepness(self) -> float | None:
        own = steepness([r.probes for r in self.rounds])
        return self.slope if own is None else own

    def capacities(self) -> list[float]:
        """The same in inferences per second; of listed loads, what was served."""
        return [_served(r, level) for r, level in zip(self.rounds, self.levels(), strict=True)]

    def expected_level(self) -> float:
        """The capacity to expect by what is known: a round on a bad server says nothing."""
        assert self.entrant.level is not None
        passed = [v for v, r in zip(self.levels(), self.rounds, strict=True) if r.passed]
        if passed or self.rounds:
            return geometric_mean(passed or self.levels())
        return self.entrant.level


def in_order(sides: list[Contender], number: int, rounds: int, seed: int) -> list[Contender]:
    """The order of a round, such that a drift of the machine favours no side.

    Each side has each place equally often where the number of rounds allows it. Otherwise every
    other round is reversed, and the seed decides who is first in the one left over.
    """
    if rounds % len(sides) == 0:
        first = number % len(sides)
        return [*sides[first:], *sides[:first]]
    return sides if (number + seed) % 2 == 0 else sides[::-1]


def measure_fixed_round(measure: Callable[[float], Point], level: float) -> Round:
    """Measures once, at the load that must be sustained, as the spec lists the loads."""
    return Round((measure(level),), fixed=True)


def search_round(
    measure: Callable[[float], Point],
    expected: float,
    levels: LevelRange,
    *,
    brief: bool = False,
    fine: bool = False,
    rough: bool = False,
    least: float = 0.0,
    known: Sequence[Point] = (),
    sent: float = 0.0,
) -> Round:
    """One level below and one above the expected capacity; further until one passes.

    A ``brief`` round is over with the first level that passed near enough to its bound to tell the
    capacity by the slope of another config. A ``fine`` one has another measurement where the
    capacity seems to be, if that depends on how the utilisation rises between those around it. A
    ``rough`` one takes larger steps, and is over once a level passed and one failed. Any round is
    over with a level under which fewer than ``least`` requests a second were answered: a config
    that sustains so little need not be known any better.

    Levels of the round that are ``known`` are not measured again. A load that cannot be sent is
    this config's own failure if as much was ``sent`` to another.

    Raises:
        ClientLimitError: The load generator cannot even send what the config should sustain.
        LoadFailedError: No result came from any load that it was measured at.
    """
    steps, above = ROUGH if rough else ROUND, FromAbove(measure, levels)
    points, drowned = [*known], list[float]()
    first = levels.nearest(expected * (1.0 - SPREAD))
    told = any(p.level >= first if p.passed else p.level <= first for p in known)
    level = next_load(known, levels, steps) if told else first  # or between what is known already
    while level is not None and len(points) + len(drowned) < MOST_STEPS + len(known):
        try:
            points.append(measure(level))
        except (ClientLimitError, LoadFailedError) as error:
            own = level <= sent and any(p.passed for p in points)
            if isinstance(error, ClientLimitError) and not own:
                level = above.lower(error, level)
                if any(p.level >= level for p in points):
                    break
                continue
            if not any(p.passed for p in points):
                raise
            drowned.append(level)
        probes = _probes(points, drowned)
        last = probes[-1]
        if brief and last.passed and is_near(last):
            break
        if saturated(last) and (last.served_per_s or 0.0) < least:
            break
        level = next_load(probes, above.levels, steps)
        if level is None and fine:
            level, fine = _where_it_bends(probes, above.levels), False
    limit = above.levels.limit(_probes(points, drowned))
    return Round(tuple(points), drowned=tuple(drowned), limit=limit)


def _probes(points: Sequence[Point], drowned: Sequence[float]) -> list[Probe]:
    return [*points, *map(NoResult, drowned)]


def _where_it_bends(probes: Sequence[Probe], levels: LevelRange) -> float | None:
    """The likely capacity; None if lines of any shape put it at about one place."""
    bracket = Bracket.of(probes)
    floor, ceiling = bracket.floor, bracket.ceiling
    if floor is None or ceiling is None:
        return None
    flat, steep = (chord(floor, ceiling, power) for power in SHAPES)
    if abs(steep / flat - 1.0) <= STRAIGHT:
        return None
    level = levels.nearest(min(chord(floor, ceiling), bracket.top))
    return None if any(p.level == level for p in probes) else level


def _answered(round_: Round) -> float:
    """The level it sustained; for a searched level, what was answered where that was less."""
    level = round_.sustained.level
    served = round_.sustained.served_per_s
    return level if served is None or round_.fixed else min(level, served)


def _served(round_: Round, level: float) -> float:
    """Inferences per second at a level of the round."""
    sustained = round_.sustained.measurement
    if sustained.load.arrivals.open_loop and not round_.fixed:
        return level * sustained.batch_size
    bracket = Bracket.of(round_.probes)
    if bracket.floor is None or bracket.ceiling is None:
        return sustained.throughput_infer_per_s
    by_level = {p.level: p.measurement for p in round_.points}
    if sustained is not by_level[bracket.floor.level] or bracket.ceiling.level in round_.drowned:
        return sustained.throughput_infer_per_s  # fewer clients got more, or more got no result
    below = sustained.throughput_infer_per_s
    above = by_level[bracket.ceiling.level].throughput_infer_per_s
    share = min(max(math.log(level / bracket.floor.level) / math.log1p(bracket.gap), 0.0), 1.0)
    served: float = below * (above / below) ** share
    return served
