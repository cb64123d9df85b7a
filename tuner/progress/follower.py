"""The current state of a run, updated by each event; a view of a run is a `Follower`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.measurement.measurement import LoadPoint
from tuner.progress.events import Outlook
from tuner.reason import Reason, ReasonKind
from tuner.score.point import Point
from tuner.score.trial import Trial
from tuner.space.candidate import Candidate
from tuner.space.words import changes_text


@dataclass(frozen=True)
class RunProgress:
    """How far a run has come; small, since a run on another bench sends it at each change.

    Attributes:
        doing: The current phase, or the current trial with its changes.
        trials: Trials in the budget; 0 before the search starts.
        done: Finished trials.
        best_infer_per_s: Throughput of the best config; None before there is one.
        outlook: None before the first estimate.
    """

    doing: str = "starting"
    trials: int = 0
    done: int = 0
    best_infer_per_s: float | None = None
    outlook: Outlook | None = None


#: A view of runs side by side. Takes the name of a run, and its `RunProgress` or a note; None once
#: the run has ended.
RunsView = Callable[[str, object], None]


@dataclass(frozen=True)
class LoadUnderWay:
    """The current load on a server.

    Attributes:
        takes_s: Estimated duration.
        since_s: When the load started, by the follower's clock.
    """

    load: LoadPoint
    takes_s: float
    since_s: float


class WarningCounts:
    """Counts of warnings about measurements, by kind and stream."""

    def __init__(self) -> None:
        self._counts: dict[tuple[ReasonKind, str], tuple[Reason, int]] = {}

    def add(self, warnings: Sequence[Reason]) -> None:
        for warning in warnings:
            kind = warning.kind, warning.subject
            first, count = self._counts.get(kind, (warning, 0))
            self._counts[kind] = first, count + 1

    def __iter__(self) -> Iterator[tuple[Reason, int]]:
        """The first warning of each kind, and the number of warnings of the kind."""
        return iter(self._counts.values())


class Follower:
    """Keeps the current state of a run; subclasses show it.

    Attributes:
        progress: The state that other benches see.
        step_text: The current step within the phase; empty before the first step.
        under_way: The current load; None while there is none.
        best, current: The best trial so far, and the trial of the config in the repository.
        disturbances: Number of measurements made again because of a disturbance.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.began_s = clock()
        self.progress = RunProgress()
        self.step_text = ""
        self.under_way: LoadUnderWay | None = None
        self.best: Trial | None = None
        self.current = Candidate()
        self.disturbances = 0
        self.warnings = WarningCounts()
        self._outlook_s = 0.0

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self.began_s

    @property
    def outlook_now(self) -> Outlook | None:
        """The last outlook, with the time since then subtracted."""
        if (last := self.progress.outlook) is None:
            return None
        return replace(last, left_s=last.left_s - (self.clock() - self._outlook_s))

    def started(self, run: Path, trials: int, space_size: int | None) -> None:
        del run, space_size
        self._update(trials=trials)

    def phase(self, text: str) -> None:
        self._do(text)

    def step(self, text: str) -> None:
        self.step_text, self.under_way = text, None

    def note(self, text: str) -> None:
        pass

    def disturbed(self, what: str, pause_s: float) -> None:
        self.disturbances += 1
        self.step(again_text(what, pause_s))

    def trial_started(self, number: int, candidate: Candidate, current: Candidate) -> None:
        self.current = current
        self._do(f"trial {number}: {changes_text(candidate, current)}")

    def loading(self, load: LoadPoint, takes_s: float) -> None:
        self.under_way = LoadUnderWay(load, takes_s, self.clock())

    def measured(self, point: Point) -> None:
        self.under_way = None
        self.warnings.add(point.measurement.warnings)

    def round_over(self, what: str, sustained: Point) -> None:
        pass

    def outlook(self, outlook: Outlook) -> None:
        self._outlook_s = self.clock()
        self._update(outlook=outlook)

    def trial_finished(self, trial: Trial, best: Trial | None) -> None:
        self.best = best
        at = best_point(best)
        rate = None if at is None else at.measurement.throughput_infer_per_s
        done = max(self.progress.done, trial.number + 1)
        self._update(done=done, best_infer_per_s=rate or self.progress.best_infer_per_s)

    def ended(self, run: Path, status: str, exit_code: int, why: str = "") -> None:
        pass

    def _do(self, what: str) -> None:
        self.step_text, self.under_way = "", None
        self._update(doing=what)

    def _update(self, **changed: object) -> None:
        self.progress = replace(self.progress, **changed)  # type: ignore[arg-type]


def again_text(what: str, pause_s: float) -> str:
    """`measured again in 5 s: Other processes took 33% of the CPU`."""
    return f"measured again in {pause_s:.0f} s: {what}"


def best_point(trial: Trial | None) -> Point | None:
    """The highest load at which a trial met the SLOs; None if it met them at no load."""
    score = None if trial is None else trial.score
    if trial is None or score is None or score.best_point is None:
        return None
    return trial.points[score.best_point]
