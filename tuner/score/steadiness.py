"""Whether a load could go on for ever as in its window: with a growing queue it could not."""

from __future__ import annotations

import math

from tuner.measurement.measurement import Measurement
from tuner.spec.digits import digits

#: Of the requests due in a window, this share may be answered after it.
BEHIND = 0.01
#: This, over the square root of the number due, is allowed on top: how many are under way at the
#: start and end of a window varies by chance. Two standard deviations of queues at 0.95 of their
#: saturation (benchmarks/claims/claims.py --steadiness).
BY_CHANCE = 0.6
#: Growth of the latency that is a trend: as a share of its mean, in standard errors, and as a share
#: of its bound, which a hundredth of the load too much adds in the shortest window.
GROWTH, SURE, OF_BOUND = 0.5, 3.0, 0.1


def unsteadiness(measurement: Measurement, bound_us: float) -> str:
    """Why the state it was measured in does not last, in words; empty when nothing shows that.

    Two signs, either of which is enough. Fewer requests were answered than were due: above
    saturation the difference is at least the excess of the load, however long the latency SLO
    lets a queue grow. Or latency rises on a line through the window, by more than chance would
    explain and towards its bound. In a closed loop clients wait for their answers, so it is always
    steady.

    ``bound_us``: of the latency; infinite for an SLO on something else.
    """
    if not measurement.load.arrivals.open_loop:
        return ""
    behind, course = behind_share(measurement), measurement.course
    if behind is not None:
        return f"answered {digits(100 * (1 - behind), 3)}% of what was due"
    if course is None or course.growth * measurement.avg_latency_us <= OF_BOUND * bound_us:
        return ""
    if course.growth > max(GROWTH, SURE * course.growth_error):
        return f"latency grows by {digits(100 * course.growth, 2)}% of its mean within the window"
    return ""


def behind_share(measurement: Measurement) -> float | None:
    """The part of the requests due that was not answered meanwhile.

    None where that is not known, or no more than chance leaves unanswered.
    """
    rate = measurement.due_per_s
    if not rate:
        return None
    due = rate * measurement.duration_s
    behind = 1.0 - (measurement.completed_count + measurement.failed_count) / due
    return behind if behind > BEHIND + BY_CHANCE / math.sqrt(due) else None
