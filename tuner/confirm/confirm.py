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
from tuner.score.judge import passes, value_of
from tuner.score.point import Point
from tuner.space.candidate import Candidate
from tuner.spec.objective import Goal, Objective

#: A finalist that misses an SLO in a round starts again at this share of its load.
STEP_DOWN = 0.95
#: And is given up after this many.
MOST_STEPS_DOWN = 3
#: A challenge that the current config stood is raised by this factor.
STEP_UP = 1.08


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
    """``seed`` differs from every seed of the search; ``record`` stores a row at once."""

    objective: Objective
    rounds: int
    min_gain: float
    seed: int
    record: Callable[[Row], None]


def confirm(bench: Bench, current: Entrant, finalist: Entrant, rules: Rules) -> Confirmation:
    """Measures both for ``rules.rounds`` rounds and decides.

    Raises:
        TrialError: A config that was deployed in the search cannot be deployed or measured now.
    """
    assert finalist.level is not None
    for _ in range(MOST_STEPS_DOWN + 1):
        duel = _Duel(bench, current, finalist, rules)
        if duel.fought():
            return duel.judged()
        if rules.objective.goal is Goal.MINIMIZE:
            break
        finalist = replace(finalist, level=finalist.level * STEP_DOWN, failed_level=finalist.level)
        assert finalist.level is not None
        if current.level is not None and finalist.level < current.level * (1 + rules.min_gain):
            break
    return Confirmation(
        finalist,
        Outcome.NOT_FEASIBLE,
        "it missed an SLO when measured again on a fresh server",
        None,
        tuple(duel.points),
        tuple(duel.current_points),
    )


class _Duel:
    """The rounds between two configs at one load of the finalist."""

    def __init__(self, bench: Bench, current: Entrant, finalist: Entrant, rules: Rules) -> None:
        self._bench = bench
        self._current = current
        self._finalist = finalist
        self._rules = rules
        self._round = 0
        self._order = 0
        self.points: list[Point] = []
        self.current_points: list[Point] = []
        self._stood = current.level
        self._ceiling: float | None = None

    def fought(self) -> bool:
        """All rounds; False as soon as the finalist misses an SLO."""
        for number in range(self._rules.rounds):
            self._round, self._order = number, 0
            sides = [self._measure_current, self._measure_finalist]
            for side in sides if self._round % 2 == 0 else reversed(sides):
                side()
            if not passes(self.points[-1].slo):
                return False
        return True

    def judged(self) -> Confirmation:
        ratio = self._ratio()
        better = ratio is None or ratio.low > 1.0 + self._rules.min_gain
        if better:
            outcome, reason = Outcome.CONFIRMED, "every SLO met in every round"
        else:
            assert ratio is not None
            outcome = Outcome.NOT_BETTER
            reason = (
                f"measured again it is {ratio.estimate:.3g} times the current config "
                f"(95 % interval {ratio.low:.3g} to {ratio.high:.3g}), "
                f"less than the {self._rules.min_gain:.0%} a change must be worth"
            )
        points = (tuple(self.points), tuple(self.current_points))
        return Confirmation(self._finalist, outcome, reason, ratio, *points)

    def _measure_finalist(self) -> None:
        assert self._finalist.level is not None
        self._bench.deploy(self._finalist.candidate, fresh=True)
        point = self._measure(Role.CANDIDATE, self._finalist.candidate, self._finalist.level)
        self.points.append(point)

    def _measure_current(self) -> None:
        if self._current.level is None:
            return
        self._bench.deploy(self._current.candidate, fresh=True)
        point = self._measure(Role.CURRENT, self._current.candidate, self._current.level)
        self.current_points.append(point)
        challenge = self._challenge()
        if challenge is not None:
            self._take_challenge(challenge)

    def _take_challenge(self, level: float) -> None:
        point = self._measure(Role.CHALLENGE, self._current.candidate, level)
        if passes(point.slo):
            self._stood = max(level, self._stood or level)
            self.current_points[-1] = point
            if self._ceiling is not None and self._ceiling <= self._stood:
                self._ceiling = None
        else:
            self._ceiling = level if self._ceiling is None else min(level, self._ceiling)

    def _challenge(self) -> float | None:
        """The load the current config is dared to stand; None for a fixed load."""
        if self._rules.objective.goal is Goal.MINIMIZE or self._stood is None:
            return None
        assert self._finalist.level is not None
        worth_it = self._finalist.level / (1.0 + self._rules.min_gain)
        if worth_it <= self._stood:
            return None
        known = self._ceiling or self._current.failed_level
        raised = known if known is not None and known > self._stood else self._stood * STEP_UP
        return float(f"{min(raised, worth_it):.4g}")

    def _measure(self, role: Role, candidate: Candidate, level: float) -> Point:
        seed = self._rules.seed + self._round
        point = self._bench.measure(level, seed)
        self._rules.record(Row(self._round, self._order, role, candidate, point))
        self._order += 1
        return point

    def _ratio(self) -> Ratio | None:
        if not self.current_points:
            return None
        if self._rules.objective.goal is Goal.MINIMIZE:
            if not any(passes(p.slo) for p in self.current_points):
                return None
            return paired_ratio(self._metric(self.current_points), self._metric(self.points))
        ratio = paired_ratio(_throughputs(self.points), _throughputs(self.current_points))
        return self._widened(ratio)

    def _widened(self, ratio: Ratio) -> Ratio:
        """The interval opened to where each capacity may lie between the loads measured."""
        assert self._finalist.level is not None
        assert self._stood is not None
        low, high = ratio.low, ratio.high
        if self._ceiling is not None:
            low *= self._stood / self._ceiling
        elif self._stood != self._current.level:
            low = min(low, 1.0)  # it stood every load it was dared to stand
        if self._finalist.failed_level is not None:
            high *= self._finalist.failed_level / self._finalist.level
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
