"""Progress as log lines on stderr, for CI and pipes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tuner.cli.terminal import say
from tuner.cli.ui.words import (
    disturbances_text,
    gain_text,
    load_text,
    outcome_text,
    point_text,
    progress_text,
    round_text,
    started_text,
    verdict_text,
    warning_lines,
)
from tuner.progress.events import Events
from tuner.progress.follower import Follower, RunProgress, RunsView
from tuner.score.point import Point
from tuner.score.trial import Trial
from tuner.space.candidate import Candidate
from tuner.space.words import changes_text

#: A line is printed at least this often, in seconds.
QUIET_S = 30.0


@dataclass(frozen=True)
class PlainUi:
    verbosity: int = 0
    prints_json = False

    def run(self, *, details: bool = False) -> AbstractContextManager[Events]:
        return PlainEvents(self.verbosity + details)

    def runs(self) -> AbstractContextManager[RunsView]:
        return nullcontext(PlainRuns(self.verbosity))


class PlainEvents(Follower):
    """One line for each event, and at least one line each `QUIET_S`.

    Args:
        verbosity: Above 0: also each measurement; -1: neither rounds nor notes; -2: nothing.
    """

    def __init__(self, verbosity: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._verbosity = verbosity
        self._said_s = self.began_s
        self._over = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self.disturbances > 1:  # the first was printed when it happened
            self.note(disturbances_text(self.disturbances))
        if self._verbosity > 0:
            for line in warning_lines(self.warnings):
                self.note(line)

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            self.say_if_quiet()

    def say_if_quiet(self) -> None:
        now_s = self.clock()
        if now_s - self._said_s < QUIET_S:
            return
        under_way, outlook = self.under_way, self.outlook_now
        now = self.step_text if under_way is None else load_text(under_way, now_s)
        doing = ", ".join(filter(None, (self.progress.doing, now)))
        best = f"best so far {gain_text(outlook)}" if gain_text(outlook) else ""
        self.note("; ".join(filter(None, (f"still running: {doing}", best, verdict_text(outlook)))))

    def started(self, run: Path, trials: int, space_size: int | None) -> None:
        super().started(run, trials, space_size)
        self._say(started_text(run, trials, space_size))

    def phase(self, text: str) -> None:
        super().phase(text)
        self._say(f"{text} ...")

    def note(self, text: str) -> None:
        if self._verbosity >= 0:
            self._say(text)

    def disturbed(self, what: str, pause_s: float) -> None:
        super().disturbed(what, pause_s)
        if self.disturbances == 1:
            self.note(self.step_text)

    def trial_started(self, number: int, candidate: Candidate, current: Candidate) -> None:
        super().trial_started(number, candidate, current)
        if self._verbosity > 0:
            self._say(self.progress.doing)

    def measured(self, point: Point) -> None:
        super().measured(point)
        if self._verbosity > 0:
            self._say(f"    {point_text(point)}")

    def round_over(self, what: str, sustained: Point) -> None:
        if self._verbosity >= 0:
            self._say(f"  {round_text(what, sustained)}")

    def trial_finished(self, trial: Trial, best: Trial | None) -> None:
        super().trial_finished(trial, best)
        mark = " *best*" if best is not None and best.number == trial.number else ""
        what = f"trial {trial.number}: {changes_text(trial.candidate, self.current)}"
        count = f"{self.progress.done}/{self.progress.trials}"
        self._say(f"{count}  {what}  ->  {outcome_text(trial).full}{mark}")

    def _say(self, text: str) -> None:
        if self._verbosity < -1:
            return
        self._said_s = self.clock()
        minutes, seconds = divmod(int(self.elapsed_s), 60)
        say(f"[{minutes:02d}:{seconds:02d}] {text}", err=True)


class PlainRuns:
    """A line for each ended trial and each note of runs in parallel."""

    def __init__(self, verbosity: int = 0) -> None:
        self._verbosity = verbosity
        self._done: dict[str, int] = {}

    def __call__(self, name: str, what: object) -> None:
        if self._verbosity < -1:
            return
        if isinstance(what, RunProgress):
            if what.done and self._done.get(name) != what.done:
                self._done[name] = what.done
                say(f"{name}: {progress_text(what)}", err=True)
        elif what is not None and self._verbosity >= 0:
            say(f"{name}: {what}", err=True)
