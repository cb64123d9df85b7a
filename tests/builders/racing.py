"""Races that are over, with the ratios that a test gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from builders.candidates import candidate_of
from builders.measurements import P99_40MS, synthetic_measurement
from builders.reasons import said

from tuner.measurement.measurement import Arrivals
from tuner.proof.contender import Contender, Round
from tuner.proof.entrants import Entrant, ProofRules
from tuner.proof.rounds import RoundsResult
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan
from tuner.score.point import judge_point
from tuner.score.ratio import Ratio
from tuner.spec.model import Confirm
from tuner.spec.slo import Objective

PLAN = LoadPlan(Arrivals.POISSON, None, LevelRange(0.1, 1e5))


def rules(**confirm: Any) -> ProofRules:
    spec = Confirm.model_validate(confirm)
    return ProofRules(Objective.goodput(), (P99_40MS,), PLAN, spec, 100)


def side(number: int, levels: Sequence[float], left: str = "") -> Contender:
    """A config that sustained one level in each round."""
    points = [judge_point([P99_40MS], synthetic_measurement(level, 30e3)) for level in levels]
    entrant = Entrant(candidate_of({"instance_group.count": number}), 100.0)
    return Contender(entrant, [Round((p,)) for p in points], said(left) if left else None)


def a_race(*ratios: Ratio, **changes: Any) -> RoundsResult:
    finalists = [side(2 + n, [100.0] * 10) for n in range(len(ratios))]
    by = {f.candidate: r for f, r in zip(finalists, ratios, strict=True)}
    return RoundsResult(side(1, [100.0] * 10), tuple(finalists), by, **changes)
