"""How every measurement of a run is made: how long, under which SLOs, and who hears of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tuner.measurement.measurement import Arrivals, LoadPoint, Rejected
from tuner.measurement.window import Window
from tuner.meter.cache import CacheRules
from tuner.score.point import Point
from tuner.spec.slo import Slo


@dataclass(frozen=True)
class BenchRules:
    """How every measurement in a run is made.

    Attributes:
        window: Load point and the requests per second to expect, None where that is not known, to
            the length of its measurement, in the rounds of a proof or a check.
        brief: Like ``window``, in the search; None: the same.
        checkpoint: Called before each step; raises when the run is to stop.
        cache: Which candidates have one, and what is to be in it.
        rejected: Receives each measurement that does not count.
        note: Receives a sentence about anything that takes long.
        step: Receives what is done now, in a few words.
        disturbed: Receives what disturbed a measurement that is made again, and in how many
            seconds.
        loading: Hears of each load before it is put on, and for how many seconds.
        first_answer_s: A model that was just loaded may take this long to answer.
        soak: Like ``window``, for the long load on the config to be written, which is to last this
            many seconds; None: no longer than any other.
    """

    slos: Sequence[Slo]
    arrivals: Arrivals
    window: Callable[[LoadPoint, float | None], Window]
    checkpoint: Callable[[], None]
    measured: Callable[[Point], None]
    cache: CacheRules = field(default_factory=CacheRules)
    rejected: Callable[[Rejected], None] = lambda _: None
    note: Callable[[str], None] = lambda _: None
    step: Callable[[str], None] = lambda _: None
    disturbed: Callable[[str, float], None] = lambda *_: None
    loading: Callable[[LoadPoint, float], None] = lambda *_: None
    first_answer_s: float = 120.0
    brief: Callable[[LoadPoint, float | None], Window] | None = None
    soak: Callable[[LoadPoint, float | None, float], Window] | None = None
