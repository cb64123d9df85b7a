"""Whether a miss is that of a model that was still warming up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuner.measurement.measurement import Measurement
from tuner.score.judge import judge_all, passes
from tuner.score.point import Point
from tuner.spec.slo import Slo

#: The start is one part in so many of the requests; the rest is enough for a verdict.
START = 3


def missed_while_warming_up(slos: Sequence[Slo], point: Point) -> bool:
    """An SLO was missed, and would not have been without the start of the window.

    A busy period at the start looks the same, so this is a reason to measure again, not for a
    verdict.
    """
    import numpy as np

    from tuner.load.latency.timeline import latency_figures

    def settled(measurement: Measurement) -> Measurement:
        latencies_us = measurement.by_arrival_us
        if latencies_us is None:
            return measurement
        rest = np.sort(latencies_us[latencies_us.size // START :])
        figures = {**latency_figures(rest), "completed_count": rest.size}
        return replace(measurement, **figures, course=None, due_per_s=None)

    if point.passed:
        return False
    whole = point.measurement
    streams = {name: settled(stream) for name, stream in whole.streams.items()}
    later = replace(settled(whole), streams=streams)
    return passes(judge_all(slos, later))
