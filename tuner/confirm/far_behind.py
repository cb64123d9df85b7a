"""A slow config that is far behind: one load it does not sustain shows by how much at least.

A window that proves a p99 holds 459 requests: at 0.8/s that takes nearly ten minutes, and a round
has two or more windows. A load above what the config can answer needs no such window. By the
utilisation law, no config answers more than the requests served at once divided by the time they
take (Denning and Buzen, The operational analysis of queueing network models, 1978), so a queue
grows. Once more requests are late than the percentile allows for the whole window, the SLO is
certainly missed (`tuner.load.watch.early_end`). Higher loads are not sustained either, so the gain
is at least the ratio of what the other config sustains to that load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.confirm.rounds import Round, search_round
from tuner.score.capacity import NEAR, LevelRange, saturated
from tuner.score.point import Point

#: Every finalist sustains this many times the load of the current config, both in a round and in
#: the search: two servers, each with its own arrivals, would have to be wrong by that much.
OUTCLASSED = 3.0
#: The load is this many times the expected capacity, which is known from few requests.
ABOVE = 1.5
#: Only where a measurement at what is expected takes longer than this, in seconds.
LONG_S = 60.0


def one_is_enough(
    current: float, others: Sequence[float], length_s: Callable[[float], float]
) -> bool:
    """Whether only the best of ``others`` is to be confirmed: a choice costs minutes a round."""
    return length_s(current) > LONG_S and min(others) > OUTCLASSED * current


def search_far_behind(
    measure: Callable[[float], Point],
    expected: float,
    others: Sequence[float],
    levels: LevelRange,
    length_s: Callable[[float], float],
    sent: float = 0.0,
) -> Round:
    """A rough round, or one load that the config does not sustain, where that is enough to know.

    Args:
        measure: At a level.
        expected: Capacity of the config.
        others: What the configs it is compared with are expected to sustain.
        levels: Loads that may be asked for.
        length_s: Of a measurement at a level.
        sent: The highest load that was sent to any config.
    """
    above, known = levels.nearest(ABOVE * expected), list[Point]()
    far = all(other >= OUTCLASSED * above for other in others)
    if far and others and length_s(expected) > LONG_S and not levels.whole:
        known = [measure(above)]
        if _certainly_missed(known[0]):
            return Round(tuple(known), missed=True)
    return search_round(measure, expected, levels, rough=True, known=known, sent=sent)


def _certainly_missed(point: Point) -> bool:
    near = not saturated(point) and (point.slo_utilisation or 0.0) < NEAR[1]
    return not (point.passed or point.undecided or near)
