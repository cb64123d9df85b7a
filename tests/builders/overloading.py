"""What is needed to overload two configs of an emulated bench."""

from __future__ import annotations

from typing import Any

from builders.candidates import candidate_of
from builders.emulated import EmulatedBench, a_session
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement
from builders.reasons import said

from tuner.load.probes.overload import Overload
from tuner.measurement.measurement import Arrivals
from tuner.meter.session import Session
from tuner.record.proved import ProvedConfig
from tuner.record.result_schema import RunDecision
from tuner.record.status import Status
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan
from tuner.score.point import judge_point
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec
from tuner.spec.slo import Slo

CURRENT = candidate_of({"instance_group.count": 1})
WINNER = candidate_of({"instance_group.count": 4})


class Probed(EmulatedBench):
    """``trouble`` is what a probe of the winner runs into."""

    def __init__(self, trouble: Exception | None = None) -> None:
        super().__init__({CURRENT: 100.0, WINNER: 110.0})
        self.trouble = trouble

    def overload(self, capacity: float, slo: Slo, seed: int) -> Overload:
        if self.trouble is not None and self.candidate == WINNER:
            raise self.trouble
        return super().overload(capacity, slo, seed)


def side(candidate: Candidate, *levels: float, p99_us: float = 20e3) -> ProvedConfig:
    measured = (synthetic_measurement(level, p99_us) for level in levels)
    points = tuple(judge_point([P99_40MS, NO_ERRORS], m) for m in measured)
    return ProvedConfig.of(candidate, points)


def verdict(winner: ProvedConfig | None = None) -> RunDecision:
    status = Status.IMPROVED if winner else Status.KEPT
    return RunDecision.of(status, (said("a reason"),), side(CURRENT, 100.0), winner)


def step(bench: EmulatedBench, **changes: Any) -> Session:
    spec: dict[str, Any] = {
        "model": "m",
        "repository": "r",
        "slo": ["p99_latency <= 40ms"],
        "space": {"instance_group.count": {"int": [1, 6]}},
    }
    arrivals = changes.pop("arrivals", Arrivals.POISSON)
    listed = changes.pop("listed", None)
    checked = Spec.model_validate({**spec, **changes})
    if checked.objective.at_level is not None:
        listed = (checked.objective.at_level,)
    plan = LoadPlan(arrivals, listed, LevelRange(0.1, 1e5))
    return a_session(bench, checked, CURRENT, plan)
