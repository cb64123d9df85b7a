"""One measurement with its verdicts, and the score of a trial."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.errors import LoadFailedError
from tuner.facts import Facts
from tuner.measurement.measurement import Figures, Measurement
from tuner.score.judge import (
    SloOutcome,
    SloResult,
    behind_share,
    judge_all,
    outcome_of,
    slo_utilisation,
    value_of,
    violation,
)
from tuner.spec.metrics import Metric
from tuner.spec.slo import Goal, Objective, Slo


@dataclass(frozen=True)
class Point(Facts):
    """One measurement of a trial, with the result for each SLO; a `Probe`."""

    measurement: Measurement
    slo: tuple[SloResult, ...]

    def reading(self, metric: Metric, stream: str = "") -> float | None:
        """A metric's value in its base unit; if the measurement lacks it, that of the verdict.

        None where it was not measured.
        """
        measured = value_of(metric, self.measurement.of(stream))
        judged = (r.value for r in self.slo if (r.metric, r.stream) == (metric.name, stream))
        return next(judged, None) if measured is None else measured

    @property
    def level(self) -> float:
        return self.measurement.load.level

    @property
    def outcome(self) -> SloOutcome:
        """The outcome of all SLOs; too few answers in an overload count as a miss."""
        result = outcome_of(self.slo)
        overloaded = result is SloOutcome.TOO_FEW and [*_answered_of_behind(self.measurement)]
        return SloOutcome.MISSED if overloaded else result

    @property
    def passed(self) -> bool:
        return self.outcome is SloOutcome.MET

    @property
    def served_per_s(self) -> float | None:
        measured = self.measurement
        if not measured.load.arrivals.open_loop:
            return None
        return min([measured.requests_per_s, *_answered_of_behind(measured)])

    @property
    def slo_utilisation(self) -> float | None:
        return slo_utilisation(self.slo)

    def utilisation_of(self, stream: str) -> float | None:
        """The SLO utilisation by the SLOs of one stream alone."""
        return slo_utilisation([result for result in self.slo if result.stream == stream])

    @property
    def limiting_stream(self) -> str:
        """The stream of a mix that uses up most of its SLOs; "" if there is one stream."""
        used = {name: self.utilisation_of(name) or 0.0 for name in self.measurement.streams}
        return max(used, key=used.__getitem__, default="")

    @property
    def limiting(self) -> Figures:
        """The figures of the limiting stream; those of a whole mix describe no single stream."""
        return self.measurement.streams.get(self.limiting_stream, self.measurement)


def _answered_of_behind(mix: Measurement) -> Iterator[float]:
    """For each stream with a share whose queue grew: the level of the mix that it answered."""
    for stream in mix.shared.values():
        behind = behind_share(stream)
        if behind is not None:
            yield mix.load.level * (1.0 - behind)


@dataclass(frozen=True)
class Score:
    """The score of a trial, from which the search learns.

    Attributes:
        value: The objective: goodput in inferences per second (higher is better), or a minimized
            metric in its base unit (lower is better). For a pruned trial, the best possible value.
        feasible: Some measurement met every SLO.
        violation: Sum of the excesses over the bounds, as shares, at the judged measurement; 0 if
            feasible (Optuna's constraint: above 0 is infeasible).
        best_point: Index of the trial's point that the score is for; None if infeasible.
    """

    value: float
    feasible: bool
    violation: float
    best_point: int | None


def judge_point(slos: Sequence[Slo], measurement: Measurement) -> Point:
    return Point(measurement, judge_all(slos, measurement))


def score_points(objective: Objective, points: Sequence[Point]) -> Score:
    """The score of a trial from all its measurements; ``points`` must not be empty.

    Goodput is the throughput at the highest load that meets every SLO; in a closed loop, the
    highest throughput of the loads that do. If none does, the value is an upper bound: the
    throughput at the lowest load.

    Raises:
        LoadFailedError: The metric to minimize was not measured.
    """
    good = [i for i, p in enumerate(points) if p.passed]
    if objective.goal is Goal.MINIMIZE:
        return _minimised(objective, points, good)
    if good:
        best = max(good, key=lambda i: _worth(points[i].measurement))
        rate = points[best].measurement.sustained_infer_per_s
        return Score(value=rate, feasible=True, violation=0.0, best_point=best)
    lowest = min(points, key=lambda p: p.level)
    return Score(
        value=lowest.measurement.sustained_infer_per_s,
        feasible=False,
        violation=violation(lowest.slo),
        best_point=None,
    )


def _worth(measurement: Measurement) -> float:
    load = measurement.load
    return load.level if load.arrivals.open_loop else measurement.throughput_infer_per_s


def _minimised(objective: Objective, points: Sequence[Point], good: Sequence[int]) -> Score:
    assert objective.metric is not None
    index = good[0] if good else 0
    value = value_of(objective.metric, points[index].measurement)
    if value is None:
        raise LoadFailedError(
            f"{objective.metric.name} was not measured, so it cannot be minimised",
            "is there a GPU, and does the server's metrics endpoint show it?",
        )
    return Score(
        value=value,
        feasible=bool(good),
        violation=violation(points[index].slo),
        best_point=index if good else None,
    )
