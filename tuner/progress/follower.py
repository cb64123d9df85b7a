"""What a run does now, kept event by event; whatever shows a run is a `Follower`."""

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
        doing: Its phase, or the trial under way with what it changes.
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


#: Shows runs that go on side by side: called with the name of a run, and with its `RunProgress`
#: or a note; None where the run has ended.
RunsView = Callable[[str, object], None]


@dataclass(frozen=True)
class LoadUnderWay:
    """A load that is on a server now.

    Attributes:
        takes_s: How long it lasts, about.
        since_s: When it began, by the clock of its follower.
    """

    load: LoadPoint
    takes_s: float
    since_s: float


class WarningCounts:
    """Warnings of measurements by their kind and stream."""

    def __init__(self) -> None:
        self._counts: dict[tuple[ReasonKind, str], tuple[Reason, int]] = {}

    def add(self, warnings: Sequence[Reason]) -> None:
        for warning in warnings:
            kind = warning.kind, warning.subject
            first, count = self._counts.get(kind, (warning, 0))
            self._counts[kind] = first, count + 1

    def __iter__(self) -> Iterator[tuple[Reason, int]]:
        """The first warning of each kind, and how many there were."""
        return iter(self._counts.values())


class Follower:
    """Keeps what a run does now; subclasses show it.

    Attributes:
        progress: What others may see of it.
        step_text: What is done within the phase; empty where nothing was reported.
        under_way: None while no load is put on a server.
        best, current: The best trial so far, and the config in the repository.
        disturbances: Measurements that were made again.
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
        """The last outlook, with the time that is left by now."""
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

    def ended(self, run: Path, status: str, exit_code: int) -> None:
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
    """The highest load at which a trial met the SLOs; None where it met them at none."""
    score = None if trial is None else trial.score
    if trial is None or score is None or score.best_point is None:
        return None
    return trial.points[score.best_point]
