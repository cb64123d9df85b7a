"""A trial out of a study, looked at before it counts: who may write to the storage can forge it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tuner.run.reading import read_received
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.space.space import Space


def handed_in(result: Mapping[str, Any], candidate_key: str, space: Space) -> Trial:
    """The trial that somebody measured, as they numbered it.

    What it says it measured cannot be checked, and need not be: nothing is written that the run
    has not measured itself.

    Args:
        result: The whole trial as JSON.
        candidate_key: What was claimed before it was measured.
        space: What the run searches.

    Raises:
        UnreadableFileError: It is no trial, of another candidate than the claimed one, outside the
            space, or without the measurements that its state needs.
    """

    def checked(data: Mapping[str, Any]) -> Trial:
        trial = Trial.from_json(dict(data))
        if reason := _refusal(trial, candidate_key, space):
            raise ValueError(reason)
        return trial

    return read_received(f"the trial handed in for {candidate_key}", result, checked)


def _refusal(trial: Trial, candidate_key: str, space: Space) -> str:
    if trial.candidate.key != candidate_key:
        return "it is of a config other than the one claimed"
    if trial.candidate != space.current and not space.contains(trial.candidate):
        return "its config is not in the space"
    if (trial.score is None) != (trial.state is TrialState.FAILED):
        return "it is neither failed nor measured"
    best = None if trial.score is None else trial.score.best_point
    if best is not None and not 0 <= best < len(trial.points):
        return f"score.best_point is {best} of {len(trial.points)} points"
    return "" if all(map(_could_be, trial.points)) else "a measurement has impossible values"


def _could_be(point: Point) -> bool:
    m = point.measurement
    figures = (m.throughput_infer_per_s, m.p50_latency_us, m.p99_latency_us, m.wall_s)
    positive = m.load.level > 0 and m.duration_s > 0 and m.batch_size > 0
    return positive and bool(point.slo) and all(math.isfinite(f) and f >= 0 for f in figures)
