"""Proofs over an emulated bench: trials measured there, and what is proved from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from builders.candidates import candidate_of
from builders.emulated import FreshBench, a_session
from builders.measurements import synthetic_measurement
from builders.runs import Toy, manifest_of

from tuner.measurement.measurement import Arrivals, Measurement
from tuner.programs.run import prove as step
from tuner.programs.run.outcome import Verdict, result_of
from tuner.score.point import judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec
from tuner.steps.events import Events, Silent

COUNT = "instance_group.count"
CURRENT, OTHER, THIRD = (candidate_of({COUNT: n}) for n in (1, 2, 3))
#: A seed of the search.
SEARCHED = 1


class ProvingBench(FreshBench):
    """Serves a spec's arrivals; a metric that is minimised is the better the more it can serve."""

    def __init__(self, spec: Spec, capacity: Mapping[Candidate, float], **more: Any) -> None:
        arrivals = Arrivals(spec.workload.arrivals.kind)
        super().__init__(capacity, slos=spec.slos, arrivals=arrivals, **more)
        self.spec = spec

    @property
    def levels(self) -> list[tuple[Candidate, float]]:
        return [(a.candidate, a.level) for a in self.asked]

    def reading(self, level: float, seed: int) -> Measurement:
        if self.spec.objective.metric is None:
            return super().reading(level, seed)
        return synthetic_measurement(level, 1e6 / (self.serves * self.kindness(seed)))


def spec_of(**changes: Any) -> Spec:
    spec = {"model": "m", "repository": "r", "slo": ["p99_latency <= 40ms"]}
    return Spec.model_validate({**spec, "space": {COUNT: {"int": [1, 6]}}, **changes})


def trial(bench: ProvingBench, number: int, candidate: Candidate, *levels: float) -> Trial:
    if candidate not in bench.capacity:
        return Trial(number, candidate, TrialState.FAILED, reason="out of memory")
    bench.serves = bench.capacity_of(candidate)
    points = tuple(judge_point(bench.spec.slos, bench.reading(level, SEARCHED)) for level in levels)
    score = score_points(bench.spec.objective, points)
    return Trial(number, candidate, TrialState.MEASURED, points, score)


def prove(
    bench: ProvingBench,
    *trials: Trial,
    events: Events | None = None,
    current: Candidate = CURRENT,
) -> Verdict:
    session = a_session(bench, bench.spec, current, events=events or Silent())
    return step.prove(session, trials)


def result_json(bench: ProvingBench, verdict: Verdict) -> dict[str, Any]:
    return result_of(
        manifest=manifest_of(Toy(), "r"),
        verdict=verdict,
        trials=(),
        rejected=(),
        duplicates=0,
        time={"wall_s": 1.0, "measuring_s": 1.0, "deploying_s": 0.0, "searching_s": 0.0},
        change=None,
        written=None,
    ).to_json()
