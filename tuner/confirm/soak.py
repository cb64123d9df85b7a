"""One long load on the config to be written: a direct test of the claim that users act on.

The windows of the rounds are short, and late requests come in busy periods that a short window may
miss. So the load that a config is credited with is put on it once more, on a fresh server, for as
long as production would feel it. What held once may fail the next time, so the soak begins below
what the rounds sustained, and the config is credited with a little less than what held. Where a
load does not hold (an SLO is missed, or it is not steady), it is lowered by the rule for all loads
(`tuner.score.next_load`). It is lowered too where the load generator could not keep up: a server
that leaves its client too little CPU does not hold that load either. A narrow miss on a disturbed
machine shows nothing either way: if no lower load holds, nobody knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean

from tuner.bench.protocol import Bench
from tuner.confirm.confirm import Confirmation
from tuner.confirm.rounds import SPREAD, Row
from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError
from tuner.run.confirmation import Role, Soak, Soaked
from tuner.score.capacity import NoResult, Probe, is_near, saturated
from tuner.score.late_share import LateShare, measured_late_share
from tuner.score.load_plan import LoadPlan
from tuner.score.next_load import Steps, next_load
from tuner.score.point import Point
from tuner.space.candidate import Candidate
from tuner.spec.slo import Slo

#: A soak lasts this many relaxation times of the latency, if it may: a hundred independent requests
#: give a p99 within a fifth, and so the load, where it is near its bound, within 2 or 3 % (see
#: `tuner.confirm.window.claim_window_s`). That is the spec's headroom.
RELAXATIONS = 200.0
#: The headroom of a soak that was far too short.
MOST_HEADROOM = 0.15
#: A soak that held is repeated if its own window shows that it should be longer by this factor.
LONGER = 1.5
#: Loads that one config is soaked at, the first and lower ones.
MOST = 3
#: After a load that failed far above its bound, or that the load generator could not keep up with,
#: the next lasts longer by this factor: rounds and soak then disagree since long busy periods are
#: rare, and the rarer they are, the longer it takes to meet one.
MORE = 2.0
#: A soak begins at this share of the mean capacity of the rounds, at most. With 0.95, a claim near
#: the bound of a queue was false in one run of five (`benchmarks/claims/claims.py`).
OF_MEAN = 0.90
#: A miss with this many times as many late requests as the SLO allows counts on any machine.
FAR_BEYOND = 5.0
#: What the rounds have shown is lowered by at most the first share, and by twice that if it fails
#: again.
LOWER = Steps(first=4 * SPREAD, least=SPREAD)


@dataclass(frozen=True)
class SoakRules:
    """How to soak.

    Attributes:
        plan: Loads that may be asked for.
        seed: Of the first load's arrivals; a lowered load has others, lest all share one luck.
        usual_s: How long a soak lasts if nothing asks for more.
        least_s: How long a soak is to last at least, if that is possible.
        record: Stores a row at once.
        told: Receives a sentence about each finished soak, and why one that held is repeated.
        headroom: The config is credited with this share less than what held.
    """

    slos: Sequence[Slo]
    plan: LoadPlan
    seed: int
    usual_s: float
    least_s: float
    record: Callable[[Row], None]
    told: Callable[[str], None]
    headroom: float = 0.0


def soak(
    bench: Bench,
    candidate: Candidate,
    level: float,
    rules: SoakRules,
    *,
    at_most: int = MOST,
) -> Soak:
    """Tests for long the load a config is credited with, then lower loads until one holds.

    Args:
        bench: Measures.
        candidate: Gets a fresh server each time.
        level: The first load, see `first_level`.
        rules: What is common to all soaks of a run.
        at_most: Loads to try. A single one only compares: it is not repeated for longer.

    Raises:
        TrialError: It could not be served, or a load gave no result.
    """
    soaks = _Soaks(bench, candidate, rules, rules.least_s, rules.least_s / RELAXATIONS)
    put = soaks.put if at_most > 1 else soaks.once
    failed: list[Probe] = []
    lower: float | None = level
    while lower is not None and len(failed) < at_most:
        found = put(lower)
        if isinstance(found, Soaked) and found.held:
            break
        failed.append(found.point if isinstance(found, Soaked) else found)
        lower = _lower(failed, rules.plan)
    tried = tuple(soaks.tried)
    unclear = bool(tried) and tried[-1].excuse and not soaks.limited
    reason = f"it missed an SLO on a disturbed machine: {tried[-1].excuse}" if unclear else ""
    headroom = min(rules.headroom * soaks.uncertainty, MOST_HEADROOM)
    return Soak(tried, reason, tuple(soaks.limited), headroom)


def first_level(proof: Confirmation, plan: LoadPlan) -> float:
    """The load to begin with: below its mean capacity, and no more than it sustained in each round.

    The first only where rates are searched, since only then do rounds give a capacity.
    """
    if plan.listed is not None or not plan.arrivals.open_loop:
        return proof.level
    return min(proof.level, plan.levels.nearest(OF_MEAN * geometric_mean(proof.own.levels())))


def remembered_s(points: Sequence[Point]) -> float:
    """How long the latency remembers, as the windows show it, times `RELAXATIONS`."""
    return RELAXATIONS * max(map(_relaxation_s, points), default=0.0)


def _relaxation_s(point: Point) -> float:
    course = point.measurement.course
    return 0.0 if course is None else course.relaxation_s


def _excuse(point: Point, late: LateShare | None, slos: Sequence[Slo]) -> str:
    """What disturbed the machine beside a miss that may be its fault; else empty.

    None for a load that the server could not answer, or with far more late requests than the SLO
    allows.
    """
    if point.passed or saturated(point):
        return ""
    allowed = max(
        (1.0 - (s.metric.quantile or 0.0) for s in slos if s.metric.quantile), default=0.0
    )
    if late is not None and late.share > FAR_BEYOND * allowed:
        return ""
    return " ".join(point.measurement.disturbances).rstrip(".")


@dataclass
class _Soaks:
    """Puts long loads on one config and keeps what they show."""

    bench: Bench
    candidate: Candidate
    rules: SoakRules
    least_s: float
    remembers_s: float  # the longest relaxation time seen
    tried: list[Soaked] = field(default_factory=list)
    limited: list[str] = field(default_factory=list)

    @property
    def uncertainty(self) -> float:
        """The error of the last soak over that of one of `RELAXATIONS`, at least 1.

        It falls with the square root of the length, and a slow model's soak may be cut short.
        """
        lasted_s = self.tried[-1].measurement.duration_s if self.tried else math.inf
        return math.sqrt(max(RELAXATIONS * self.remembers_s / lasted_s, 1.0))

    def put(self, level: float) -> Soaked | NoResult:
        """One that held, but remembers for longer than it lasted, is repeated for longer.

        Returns:
            What the load showed, or what the load generator that could not keep up did send.
        """
        asked_s = self.least_s
        found = self.once(level)
        if isinstance(found, NoResult) or not found.held:
            return found
        if self.least_s <= LONGER * max(asked_s, found.measurement.duration_s):
            return found
        longer = f"repeated for {self.least_s:.0f} s"
        self.rules.told(f"latency recovers slowly after busy periods: {longer}")
        found = self.once(level)
        if isinstance(found, NoResult):
            self.tried.pop()  # it held for too short a time to show anything
        return found

    def once(self, level: float) -> Soaked | NoResult:
        try:
            point = self._measure(level)
        except ClientLimitError as error:
            self.limited.append(error.message)
            self.rules.told(error.message)
            self._last_longer()
            return NoResult(level, error.sent_per_s)
        order = len(self.tried) + len(self.limited)
        self.rules.record(Row(0, order, Role.SOAK, self.candidate, point))
        self.remembers_s = max(self.remembers_s, _relaxation_s(point))
        late = measured_late_share(point.measurement, self.rules.slos, self.remembers_s)
        found = Soaked(point.measurement, point.slo, late, _excuse(point, late, self.rules.slos))
        self.tried.append(found)
        self.rules.told(found.sentence)
        if found.held or is_near(point):
            self.least_s = max(self.least_s, remembered_s([point]))
        else:  # how long a queue remembers so far above its bound says nothing of lower loads
            self._last_longer()
        return found

    def _last_longer(self) -> None:
        self.least_s = max(self.least_s, self.rules.usual_s) * MORE

    def _measure(self, level: float) -> Point:
        """Repeats a load that gave no result: the generator may have failed."""
        seed = self.rules.seed + len(self.tried) + len(self.limited)
        self.bench.deploy(self.candidate, fresh=True)
        try:
            return self.bench.soak(level, seed, self.least_s)
        except ModelFailsError:
            raise
        except LoadFailedError:
            self.bench.deploy(self.candidate, fresh=True)
            return self.bench.soak(level, seed, self.least_s)


def _lower(failed: Sequence[Probe], plan: LoadPlan) -> float | None:
    """The load to try after those that did not hold; None where none is left."""
    if plan.listed is not None:
        return max((listed for listed in plan.listed if listed < failed[-1].level), default=None)
    return next_load(failed, plan.levels, LOWER)
