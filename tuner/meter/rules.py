"""Rules for every measurement of a run: its length, its SLOs and its receivers."""

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
    """Rules for every measurement of a run.

    Attributes:
        window: The window of a measurement, by the load and the expected requests per second
            (None: not known). In a search it ends once an SLO is certainly missed.
        soak: Like ``window``, for soaks, with the least length in seconds as a third argument.
        checkpoint: Called before each step; raises when the run should stop.
        measured: Receives each measurement that counts, with its verdicts.
        cache: Which candidates have a response cache, and its content.
        rejected: Receives each measurement that does not count.
        note: Receives a sentence about an event or a finding.
        step: Receives the current step, in a few words.
        disturbed: Receives the disturbances of a measurement that is repeated, and the seconds
            until the repetition.
        loading: Receives each load before it begins, and its length in seconds.
        first_answer_s: Most seconds to wait for the first answer of a model that was just loaded.
    """

    slos: Sequence[Slo]
    arrivals: Arrivals
    window: Callable[[LoadPoint, float | None], Window]
    soak: Callable[[LoadPoint, float | None, float], Window]
    checkpoint: Callable[[], None]
    measured: Callable[[Point], None]
    cache: CacheRules = field(default_factory=CacheRules)
    rejected: Callable[[Rejected], None] = lambda _: None
    note: Callable[[str], None] = lambda _: None
    step: Callable[[str], None] = lambda _: None
    disturbed: Callable[[str, float], None] = lambda *_: None
    loading: Callable[[LoadPoint, float], None] = lambda *_: None
    first_answer_s: float = 120.0
