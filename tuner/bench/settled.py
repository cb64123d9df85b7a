"""Whether a miss is that of a model that was still warming up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuner.score.judge import judge_all, passes
from tuner.score.point import Point
from tuner.spec.slo import Slo


def missed_while_warming_up(slos: Sequence[Slo], point: Point) -> bool:
    """An SLO was missed, and would not have been without the start of the window.

    See `tuner.load.latency.settling` for where the start ends. A busy spell at the start looks the
    same: this is a reason to measure again, not for a verdict.
    """
    import numpy as np

    from tuner.load.latency.settling import settled_from
    from tuner.load.latency.timeline import latency_figures

    measurement = point.measurement
    if point.passed or measurement.by_arrival_us is None:
        return False
    first = settled_from(measurement.by_arrival_us)
    if not first:
        return False
    rest = np.sort(measurement.by_arrival_us[first:])
    figures = {**latency_figures(rest), "completed_count": rest.size}
    later = replace(measurement, **figures, course=None, due_per_s=None)
    return passes(judge_all(slos, later))
