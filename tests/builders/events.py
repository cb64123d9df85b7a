"""The events of a short run: a good trial, one that failed, the first round."""

from __future__ import annotations

from pathlib import Path

from builders.candidates import candidate_of
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_server
from builders.reasons import said

from tuner.progress.events import Events, Silent
from tuner.score.point import Point, judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.spec.slo import Objective

CURRENT = candidate_of({"instance_group.count": 1})
OTHER = candidate_of({"instance_group.count": 2})


class Watching(Silent):
    """Keeps all events."""

    def __init__(self) -> None:
        self.begun: list[tuple[object, ...]] = []
        self.phases: list[str] = []
        self.notes: list[str] = []
        self.rounds: list[str] = []

    def started(self, *facts: object) -> None:
        self.begun.append(facts)

    def phase(self, text: str) -> None:
        self.phases.append(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def round_over(self, what: str, sustained: Point) -> None:
        self.rounds.append(what)


def tell_a_run(events: Events) -> None:
    point = judge_point([P99_40MS, NO_ERRORS], synthetic_server(900, 1000))
    score = score_points(Objective.goodput(), [point])
    good = Trial(0, CURRENT, TrialState.MEASURED, points=(point,), score=score)
    events.started(Path("results/r"), 2, 12)
    events.phase("searching")
    events.trial_started(0, CURRENT, CURRENT)
    events.measured(point)
    events.trial_finished(good, good)
    events.trial_started(1, OTHER, CURRENT)
    events.note("something worth a line")
    events.trial_finished(
        Trial(1, OTHER, TrialState.FAILED, reason=said("no GPU\nsecond line")), good
    )
    events.phase("confirming")
    events.round_over("round 1, instances 2", point)
