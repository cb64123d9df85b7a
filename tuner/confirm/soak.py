"""One long load on the config to be written: a direct test of the claim that users act on.

docs/internals/measuring-policy.md has the rules: how long it lasts, what lowers the claim, and
which short loads follow around it. Late requests come in busy periods, which the windows of the
rounds may miss; `claim_window_s` says how long those must be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean

from tuner.bench.protocol import Bench
from tuner.confirm.confirm import Confirmation
from tuner.confirm.rounds import SPREAD, Row
from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError, TrialError
from tuner.measurement.window import SOAK_AT_MOST, Window
from tuner.run.confirmation import LoadCurve, Role, Soak, Soaked
from tuner.score.capacity import NEAR, NoResult, Probe, is_near, saturated, steepness
from tuner.score.judge import tail_slo
from tuner.score.late_share import LateShare, measured_late_share
from tuner.score.next_load import LoadPlan, Steps, next_load
from tuner.score.point import Point
from tuner.space.candidate import Candidate
from tuner.spec.slo import Slo
from tuner.spec.units import digits
from tuner.spec.workload import Workload

#: A soak lasts this many relaxation times of the latency, if it may: a hundred independent requests
#: give a p99 within a fifth, and so the load, where it is near its bound, within 2 or 3 % (see
#: `claim_window_s`). That is the spec's headroom.
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
        seed: Of the first load's arrivals; a lowered load has others, lest all share one luck.
        usual_s: How long a soak lasts if nothing asks for more.
        least_s: How long a soak is to last at least, if that is possible.
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
    bench: Bench, candidate: Candidate, level: float, rules: SoakRules, *, at_most: int = MOST
) -> Soak:
    """Tests for long the load a config is credited with, then lower loads until one holds.

    Args:
        candidate: Gets a fresh server each time.
        level: The first load, see `first_level`.
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
        if rules.plan.listed is None:
            lower = next_load(failed, rules.plan.levels, LOWER)
        else:
            last = failed[-1].level
            lower = max((listed for listed in rules.plan.listed if listed < last), default=None)
    tried = tuple(soaks.tried)
    unclear = bool(tried) and tried[-1].excuse and not soaks.limited
    reason = f"it missed an SLO on a disturbed machine: {tried[-1].excuse}" if unclear else ""
    # The error falls with the square root of the length, and a slow model's soak may be cut short.
    lasted_s = tried[-1].measurement.duration_s if tried else math.inf
    uncertainty = math.sqrt(max(RELAXATIONS * soaks.remembers_s / lasted_s, 1.0))
    headroom = min(rules.headroom * uncertainty, MOST_HEADROOM)
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

    def put(self, level: float) -> Soaked | NoResult:
        """One that held, but remembers for longer than it lasted, is repeated for longer.

        Returns:
            What the load showed, or what the load generator that could not keep up did send.
        """
        asked_s = self.least_s
        found = self.once(level)
        if isinstance(found, NoResult) or not found.held:
            return found
        longest_s = min(self.least_s, SOAK_AT_MOST * self.rules.usual_s)
        if longest_s <= LONGER * max(asked_s, found.measurement.duration_s):
            return found
        longer = f"repeated for {longest_s:.0f} s"
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


#: Of the credited load, ascending: what an overload leaves behind must not be in the next one.
SHARES = (0.7, 0.8, 0.9, 1.0, 1.05)
#: How long each lasts, and load before it; the server has just been warmed by the soak.
LASTS_S, SETTLING_S = 5.0, 0.5


def measure_curve(
    bench: Bench,
    candidate: Candidate,
    credited: float,
    slos: Sequence[Slo],
    window_at: Callable[[float], Window],
    seed: int,
    record: Callable[[Row], None],
) -> LoadCurve:
    """Puts short loads on the server that is there; one that gives no result ends it.

    Args:
        bench: With the config on a server that sustained the credited load.
        credited: Requests per second.
        slos: One of them is on the tail of the latency.
        window_at: Requests per second to the window that a verdict needs.
    """
    points, short, left_out = [], list[str](), list[str]()
    for order, share in enumerate(SHARES):
        level = share * credited
        rate, window = f"{digits(level, 4)}/s", window_at(level)
        if window.duration_s > LASTS_S:
            short.append(rate)
            continue
        try:
            point = bench.once(level, seed, window)
        except TrialError as error:
            left_out.append(f"{rate} and above ({error.message.rstrip('.')})")
            break
        record(Row(0, order, Role.CURVE, candidate, point))
        late = measured_late_share(point.measurement, slos)
        points.append(Soaked(point.measurement, point.slo, late))
        if point.measurement.backlog and share != SHARES[-1]:
            left_out.append(f"above {rate} (requests were still unanswered after it)")
            break
    if short:
        left_out.insert(0, f"{', '.join(short)} ({LASTS_S:.0f} s are too short for a verdict)")
    slo = tail_slo(slos)
    return LoadCurve("latency" if slo is None else slo.metric.name, tuple(points), tuple(left_out))


#: Standard error of a window's capacity, as a share, that is good enough.
ERROR = 0.08
#: A claim's window is at most this many of the spec's windows: what is written is also soaked.
MOST_WINDOWS = 5.0


def most_claim_window_s(workload: Workload) -> float:
    """The longest window of a confirmation that is not the search's too."""
    return min(MOST_WINDOWS * float(workload.window), float(workload.max_window))


def claim_window_s(points: Sequence[Point], slos: Sequence[Slo]) -> float:
    """The window that puts a config's capacity within `ERROR`, as its search measured it.

    Requests are late together, so a window holds as many independent ones as it is long in
    relaxation times (over two). From n of them, with an exponential tail, the quantile q of the
    latency has a relative standard error of sqrt(q / (1 - q) / n) / -ln(1 - q) (asymptotic variance
    of a sample quantile, q (1 - q) / (n f^2)). The error of the capacity is smaller by the power of
    the load with which the latency rises. Short windows also overestimate it, by about as much:
    most of them hold no busy period.

    Returns:
        Seconds; 0 where the search does not tell: no window need be longer then.
    """
    quantile = max((s.metric.quantile or 0.0 for s in slos), default=0.0)
    seeds = dict.fromkeys(p.measurement.seed for p in points)  # the slope is of one at a time
    slope = steepness([[p for p in points if p.measurement.seed == seed] for seed in seeds])
    # Short windows show too short a memory, so the longest that was seen is taken.
    relaxation_s = max((_relaxation_s(p) for p in points if _is_near(p)), default=0.0)
    if quantile <= 0.0 or slope is None:
        return 0.0
    one = math.sqrt(quantile / (1.0 - quantile)) / -math.log1p(-quantile)
    independent = (one / (ERROR * slope)) ** 2
    return 2.0 * relaxation_s * independent


def _is_near(point: Point) -> bool:
    """Whether the load is near the bound, passed or missed, and the server kept up with it."""
    low, high = NEAR
    return not saturated(point) and low <= (point.slo_utilisation or 0.0) <= high
