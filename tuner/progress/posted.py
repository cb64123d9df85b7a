"""What a run elsewhere tells of its progress: little, so that it costs the machine nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.measurement.measurement import LoadPoint
from tuner.progress.events import Outlook
from tuner.score.point import Point
from tuner.score.trial import Trial
from tuner.space.candidate import Candidate


@dataclass(frozen=True)
class RunProgress:
    """How far a run has come.

    Attributes:
        doing: Its phase, or the number of the trial under way.
        trials: Those of the budget; 0 before it has begun.
        done: Trials that have ended.
        best_infer_per_s: Throughput of the best config; None before there is one.
        outlook: None while nothing is foreseen.
    """

    doing: str = "starting"
    trials: int = 0
    done: int = 0
    best_infer_per_s: float | None = None
    outlook: Outlook | None = None


class PostedEvents:
    """Tells a `RunProgress` at each change, and a note as text."""

    def __init__(self, tell: Callable[[object], None]) -> None:
        self._tell = tell
        self._progress = RunProgress()

    def _now(self, **changed: object) -> None:
        progress = replace(self._progress, **changed)  # type: ignore[arg-type]
        if progress != self._progress:
            self._progress = progress
            self._tell(progress)

    def started(self, run: Path, trials: int, space_size: int | None) -> None:
        del run, space_size
        self._now(trials=trials)

    def phase(self, text: str) -> None:
        self._now(doing=text)

    def step(self, text: str) -> None:
        del text

    def note(self, text: str) -> None:
        self._tell(text)

    def disturbed(self, what: str, pause_s: float) -> None:
        self._tell(f"measured again in {pause_s:.0f} s: {what}")

    def trial_started(self, number: int, candidate: Candidate, current: Candidate) -> None:
        del candidate, current
        self._now(doing=f"trial {number}")

    def loading(self, load: LoadPoint, takes_s: float) -> None:
        del load, takes_s

    def measured(self, point: Point) -> None:
        del point

    def round_over(self, what: str, sustained: Point) -> None:
        del sustained
        self._now(doing=what)

    def outlook(self, outlook: Outlook) -> None:
        self._now(outlook=outlook)

    def trial_finished(self, trial: Trial, best: Trial | None) -> None:
        score = None if best is None else best.score
        if best is None or score is None or score.best_point is None:
            self._now(done=trial.number + 1)
            return
        rate = best.points[score.best_point].measurement.throughput_infer_per_s
        self._now(done=trial.number + 1, best_infer_per_s=rate)

    def ended(self, run: Path, status: str, exit_code: int) -> None:
        del run, status, exit_code
