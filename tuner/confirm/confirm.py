"""The winner must prove itself: finalists and the current config measured again, interleaved.

The best of forty noisy scores is too good to be true. So each finalist is measured again on
freshly started servers, in turn with the current config (A B, B A, A B, ...), with other
arrivals in every round. It must meet every SLO in every round, and the lower end of the interval
of its gain must be worth a change.

The current config gets the benefit of the doubt: beside the load it stood in the search it is
asked to stand a higher one (the challenge), and what it stands there counts for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol

from tuner.confirm.statistics import Ratio, paired_ratio
from tuner.errors import TrialError
from tuner.score.capacity import LevelRange
from tuner.score.judge import passes, value_of
from tuner.score.point import Point
from tuner.space.candidate import Candidate
from tuner.spec.objective import Goal, Objective

#: A finalist is held to this share of the load it stood in the search: at the very edge of its
#: capacity every second measurement misses an SLO, and the best of many is at the edge by luck.
HEADROOM = 0.95
#: When it misses an SLO it is held to this share of that load, in this round and the next ones.
STEP_DOWN = 0.95
#: And is given up after this many steps.
MOST_STEPS_DOWN = 4
#: A challenge that the current config stood is raised by this factor.
STEP_UP = 1.12


class Role(Enum):
    CURRENT = "current"
    CANDIDATE = "candidate"
    CHALLENGE = "challenge"  # the current config at a load it should not stand
    SIMPLER = "simpler"  # the winner with one change undone


class Outcome(Enum):
    CONFIRMED = "confirmed"
    NOT_FEASIBLE = "an SLO was missed when measured again"
    NOT_BETTER = "no gain worth a change when measured again"


@dataclass(frozen=True)
class Entrant:
    """A config with the load it is held to.

    Attributes:
        level: Highest load that met the SLOs in the search; None when none did.
        failed_level: Lowest load above it that did not.
    """

    candidate: Candidate
    level: float | None
    failed_level: float | None = None


@dataclass(frozen=True)
class Row:
    """One measurement of the confirmation."""

    round: int
    order: int
    role: Role
    candidate: Candidate
    point: Point

    def to_json(self) -> dict[str, Any]:
        return {
            "round": self.round,
            "order": self.order,
            "role": self.role.value,
            "candidate_key": self.candidate.key,
            "point": self.point.to_json(),
        }


@dataclass(frozen=True)
class Confirmation:
    """What was shown about one finalist.

    Attributes:
        ratio: Goodput (or the minimised metric) against the current config's, above 1 is
            better; None when the current config met the SLOs at no load.
        points: The finalist's own measurements, one a round, at ``level``.
        current_points: The current config's, one a round.
    """

    finalist: Entrant
    outcome: Outcome
    reason: str
    ratio: Ratio | None
    points: tuple[Point, ...]
    current_points: tuple[Point, ...]


class Bench(Protocol):
    def deploy(self, candidate: Candidate, *, fresh: bool = False) -> object: ...

    def measure(self, level: float, seed: int) -> Point: ...


@dataclass(frozen=True)
class Rules:
    """How to confirm.

    Attributes:
        levels: Loads that may be asked for; None when the spec lists them.
        seed: Different from every seed of the search.
        record: Stores a row at once.
    """

    objective: Objective
    levels: LevelRange | None
    rounds: int
    min_gain: float
    seed: int
    record: Callable[[Row], None]


def confirm(bench: Bench, current: Entrant, finalist: Entrant, rules: Rules) -> Confirmation:
    """Measures both for ``rules.rounds`` rounds and decides.

    Raises:
        TrialError: A config that was deployed in the search cannot be deployed or measured now.
    """
    return _Duel(bench, current, finalist, rules).fought()


class _Duel:
    """The rounds between two configs."""

    def __init__(self, bench: Bench, current: Entrant, finalist: Entrant, rules: Rules) -> None:
        assert finalist.level is not None
        self._bench = bench
        self._current = current
        self._finalist = finalist
        self._rules = rules
        self._round = 0
        self._order = 0
        self._points: list[Point] = []
        self._current_points: list[Point] = []
        self._stood = current.level
        self._gaps: list[float] = []
        self._steps = 0
        self._level = finalist.level
        if rules.levels is not None:
            self._level = rules.levels.nearest(finalist.level * HEADROOM)

    def fought(self) -> Confirmation:
        for number in range(self._rules.rounds):
            self._round, self._order = number, 0
            sides = [self._measure_current, self._measure_finalist]
            for side in sides if number % 2 == 0 else reversed(sides):
                side()
            if not passes(self._points[-1].slo):
                reason = "it missed an SLO when measured again on a fresh server"
                return self._confirmation(Outcome.NOT_FEASIBLE, reason, None)
            if self._level < self._bar():
                reason = "the load it stands again is not above what the current config stands"
                return self._confirmation(Outcome.NOT_BETTER, reason, None)
        return self._judged()

    def _judged(self) -> Confirmation:
        ratio = self._ratio()
        if ratio is None or ratio.low > 1.0 + self._rules.min_gain:
            return self._confirmation(Outcome.CONFIRMED, "every SLO met in every round", ratio)
        reason = (
            f"measured again it is {ratio.estimate:.3g} times the current config "
            f"(95 % interval {ratio.low:.3g} to {ratio.high:.3g}), not surely better by "
            f"the {self._rules.min_gain:.0%} a change must be worth"
        )
        return self._confirmation(Outcome.NOT_BETTER, reason, ratio)

    def _confirmation(self, outcome: Outcome, reason: str, ratio: Ratio | None) -> Confirmation:
        proved = replace(self._finalist, level=self._level)
        points = (tuple(self._points), tuple(self._current_points))
        return Confirmation(proved, outcome, reason, ratio, *points)

    def _bar(self) -> float:
        """A load below this proves no gain; none where loads are not what is compared."""
        if self._rules.levels is None or self._stood is None:
            return 0.0
        return self._stood * (1.0 + self._rules.min_gain)

    def _measure_finalist(self) -> None:
        """One point at the load it is held to, lowered until it stands it or is given up."""
        self._bench.deploy(self._finalist.candidate, fresh=True)
        point = self._measure(Role.CANDIDATE, self._finalist.candidate, self._level)
        while not passes(point.slo) and self._stepped_down():
            point = self._measure(Role.CANDIDATE, self._finalist.candidate, self._level)
        self._points.append(point)

    def _stepped_down(self) -> bool:
        levels = self._rules.levels
        if levels is None or self._steps == MOST_STEPS_DOWN or self._level <= levels.lowest:
            return False
        self._steps += 1
        self._finalist = replace(self._finalist, failed_level=self._level)
        lower = levels.nearest(self._level * STEP_DOWN)
        self._level = lower if lower < self._level else levels.nearest(self._level - 1.0)
        return self._level >= self._bar()

    def _measure_current(self) -> None:
        """One point at the load the search found, then at higher ones until it misses an SLO."""
        if self._current.level is None:
            return
        self._bench.deploy(self._current.candidate, fresh=True)
        stood = self._current.level
        best = self._measure(Role.CURRENT, self._current.candidate, stood)
        ceiling: float | None = None
        while (challenge := self._challenge(stood)) is not None:
            point = self._measure(Role.CHALLENGE, self._current.candidate, challenge)
            if not passes(point.slo):
                ceiling = challenge
                break
            stood, best = challenge, point
        self._current_points.append(best)
        self._gaps.append(1.0 if ceiling is None else ceiling / stood)
        self._stood = max(self._stood or stood, stood)

    def _challenge(self, stood: float) -> float | None:
        """The next load the current config is dared to stand.

        None where loads are fixed, and when it stood so much that no gain worth a change is left.
        """
        if self._rules.levels is None:
            return None
        known = self._current.failed_level
        raised = known if known is not None and known > stood else stood * STEP_UP
        worth_it = self._level / (1.0 + self._rules.min_gain)
        challenge = self._rules.levels.nearest(min(raised, worth_it))
        return challenge if challenge > stood else None

    def _measure(self, role: Role, candidate: Candidate, level: float) -> Point:
        seed = self._rules.seed + self._round
        point = self._bench.measure(level, seed)
        self._rules.record(Row(self._round, self._order, role, candidate, point))
        self._order += 1
        return point

    def _ratio(self) -> Ratio | None:
        if not self._current_points:
            return None
        if self._rules.objective.goal is Goal.MINIMIZE:
            if not any(passes(p.slo) for p in self._current_points):
                return None
            return paired_ratio(self._metric(self._current_points), self._metric(self._points))
        ratio = paired_ratio(_throughputs(self._points), _throughputs(self._current_points))
        return self._widened(ratio)

    def _widened(self, ratio: Ratio) -> Ratio:
        """The interval opened to where each capacity may lie between the loads measured."""
        low, high = ratio.low / max(self._gaps), ratio.high
        if self._finalist.failed_level is not None:
            high *= self._finalist.failed_level / self._level
        return Ratio(ratio.estimate, low, max(high, ratio.estimate))

    def _metric(self, points: Sequence[Point]) -> list[float]:
        metric = self._rules.objective.metric
        assert metric is not None
        values = [value_of(metric, p.measurement) for p in points]
        if any(v is None or v <= 0 for v in values):
            raise TrialError(f"{metric.value} was not measured in every round")
        return [v for v in values if v is not None]


def _throughputs(points: Sequence[Point]) -> list[float]:
    return [p.measurement.throughput_infer_per_s for p in points]
