"""Results of runs, with what a test is about given and everything else plain."""

from __future__ import annotations

from typing import Any

from builders.measurements import P99_40MS, synthetic_measurement

from tuner.record.proved import ProvedConfig
from tuner.record.result_schema import RejectedFacts, Result
from tuner.record.status import Status
from tuner.score.point import judge_point
from tuner.space.candidate import Candidate


def a_result(winner: Candidate | None = None, **changes: Any) -> Result:
    """Of a run of the model `m`; one with a winner measured it once."""
    point = judge_point([P99_40MS], synthetic_measurement())
    proved = None if winner is None else ProvedConfig.of(winner, [point])
    wall_s = {"wall_s": 1.0, "measuring_s": 1.0, "deploying_s": 0.0, "searching_s": 0.0}
    facts: dict[str, Any] = {
        "schema_version": 1,
        "run_id": "r1",
        "model": "m",
        "status": Status.KEPT if winner is None else Status.IMPROVED,
        "baseline": None,
        "winner": proved,
        "gain": None,
        "trials": dict.fromkeys(("asked", "measured", "pruned", "failed", "duplicates"), 0),
        "rejected": RejectedFacts.of([], 0.0),
        "time": wall_s,
        "written": None,
    }
    return Result(**{**facts, **changes})
