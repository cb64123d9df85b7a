"""Proofs whose long load shows less than their rounds did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from builders.emulated import a_session
from builders.proving import CURRENT, OTHER, ProvingBench, trial

from tuner.confirm.rounds import Row
from tuner.programs.run.outcome import Verdict
from tuner.programs.run.prove import prove
from tuner.score.point import Point
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec
from tuner.steps.events import Silent


class Watching(Silent):
    def __init__(self) -> None:
        self.phases: list[str] = []
        self.notes: list[str] = []

    def phase(self, text: str) -> None:
        self.phases.append(text)

    def note(self, text: str) -> None:
        self.notes.append(text)


class Lasting(ProvingBench):
    """``lasting``: what of a config's capacity lasts, where that is not all of it."""

    def __init__(
        self,
        spec: Spec,
        capacity: Mapping[Candidate, float],
        lasting: Mapping[Candidate, float],
        trouble: Exception | None = None,
    ) -> None:
        super().__init__(spec, capacity, weather=0.0)
        self.shares = lasting
        self.trouble = trouble
        self.least_s: list[float] = []

    def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        self.least_s.append(least_s)
        if self.trouble is not None:
            raise self.trouble
        self.lasting = self.shares.get(self.candidate, 1.0)
        return super().soak(level, seed, least_s)

    @property
    def soaked(self) -> list[tuple[Candidate, float]]:
        return [(a.candidate, a.level) for a in self.soaks]


def told(bench: ProvingBench, **more: Any) -> tuple[Verdict, Watching, list[Row]]:
    """The current config and another one through the whole proof."""
    current, other = bench.capacity_of(CURRENT), bench.capacity_of(OTHER)
    watching, rows = Watching(), list[Row]()
    session = a_session(bench, bench.spec, CURRENT, events=watching, record=rows.append, **more)
    levels = session.plan.listed
    trials = (
        trial(bench, 0, CURRENT, *(levels or (0.98 * current, 1.1 * current))),
        trial(bench, 1, OTHER, *(levels or (0.98 * other, 1.1 * other))),
    )
    return prove(session, trials), watching, rows
