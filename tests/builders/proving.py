"""Proofs over an emulated bench: trials measured there, and what is proved from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from builders.candidates import candidate_of
from builders.emulated import FreshBench, a_session
from builders.measurements import synthetic_measurement
from builders.reasons import server_says
from builders.runs import MANIFEST

from tuner.measurement.measurement import Arrivals, Measurement
from tuner.proof import proof
from tuner.record.confirmation import Repeat
from tuner.record.outcome import result_of
from tuner.record.result_schema import Result, RunDecision
from tuner.score.point import Point, judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec

COUNT = "instance_group.count"
CURRENT, OTHER, THIRD = (candidate_of({COUNT: n}) for n in (1, 2, 3))
#: A seed of the search.
SEARCHED = 1


class ProvingBench(FreshBench):
    """Serves a spec's arrivals; a metric that is minimised is the better the more it can serve.

    ``shares``: what of a config's capacity lasts, where that is not all of it.
    ``trouble``: what each soak runs into.
    """

    def __init__(
        self,
        spec: Spec,
        capacity: Mapping[Candidate, float],
        shares: Mapping[Candidate, float] | None = None,
        trouble: Exception | None = None,
        **more: Any,
    ) -> None:
        arrivals = Arrivals(spec.workload.arrivals.kind)
        super().__init__(capacity, slos=spec.slos, arrivals=arrivals, **more)
        self.spec, self.shares, self.trouble = spec, shares or {}, trouble
        self.least_s: list[float] = []

    @property
    def levels(self) -> list[tuple[Candidate, float]]:
        return [(a.candidate, a.level) for a in self.loads]

    @property
    def soaked(self) -> list[tuple[Candidate, float]]:
        return [(a.candidate, a.level) for a in self.soaks]

    def measured(self, candidate: Candidate) -> int:
        """Rounds and simplifications in which the config was measured."""
        return len({a.server for a in self.loads if a.candidate == candidate})

    def reading(self, level: float, seed: int) -> Measurement:
        if self.spec.objective.metric is None:
            return super().reading(level, seed)
        return synthetic_measurement(level, 1e6 / (self.serves * self.kindness(seed)))

    def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        self.least_s.append(least_s)
        if self.trouble is not None:
            raise self.trouble
        self.lasting = self.shares.get(self.candidate, 1.0)
        return super().soak(level, seed, least_s)


def spec_of(**changes: Any) -> Spec:
    spec = {"model": "m", "repository": "r", "slo": ["p99_latency <= 40ms"]}
    return Spec.model_validate({**spec, "space": {COUNT: {"int": [1, 6]}}, **changes})


def trial(bench: ProvingBench, number: int, candidate: Candidate, *levels: float) -> Trial:
    if candidate not in bench.capacity:
        return Trial(number, candidate, TrialState.FAILED, reason=server_says("out of memory"))
    bench.serves = bench.capacity_of(candidate)
    points = tuple(judge_point(bench.spec.slos, bench.reading(level, SEARCHED)) for level in levels)
    score = score_points(bench.spec.objective, points)
    return Trial(number, candidate, TrialState.MEASURED, points, score)


def lost_at(bench: ProvingBench, number: int, candidate: Candidate, *levels: float) -> Trial:
    """A trial that lost the race at the first of ``levels``."""
    measured = trial(bench, number, candidate, *levels)
    score = score_points(bench.spec.objective, measured.points[:1])
    return replace(measured, state=TrialState.PRUNED, score=score)


def lost_without_overload(bench: ProvingBench) -> Trial:
    """The search ended the current config's trial at 400/s, before requests piled up."""
    points = (judge_point(bench.spec.slos, synthetic_measurement(400.0, 80e3)),)
    score = score_points(bench.spec.objective, points)
    return Trial(0, CURRENT, TrialState.PRUNED, points, score)


def searched(bench: ProvingBench, *candidates: Candidate) -> list[Trial]:
    """Each measured just below and just above its capacity, or at the loads the spec lists."""
    listed = a_session(bench, bench.spec, CURRENT).plan.listed

    def levels(candidate: Candidate) -> tuple[float, ...]:
        capacity = bench.capacity.get(candidate, 1.0)  # type: ignore[union-attr]
        return listed or (0.98 * capacity, 1.1 * capacity)

    return [trial(bench, n, c, *levels(c)) for n, c in enumerate(candidates)]


def prove(
    bench: ProvingBench,
    *trials: Trial,
    current: Candidate = CURRENT,
    stored: tuple[Repeat, ...] = (),
    **more: Any,
) -> RunDecision:
    """Of the current config and another one, unless the trials are given."""
    session = a_session(bench, bench.spec, current, **more)
    return proof.prove(session, trials or searched(bench, CURRENT, OTHER), stored)


def result_json(bench: ProvingBench, verdict: RunDecision) -> dict[str, Any]:
    return result_of(
        manifest=MANIFEST,
        verdict=verdict,
        trials=(),
        rejected=(),
        time={"wall_s": 1.0, "measuring_s": 1.0, "deploying_s": 0.0, "searching_s": 0.0},
    ).to_json()


def result(bench: ProvingBench, verdict: RunDecision) -> Result:
    return Result.from_json(result_json(bench, verdict))
