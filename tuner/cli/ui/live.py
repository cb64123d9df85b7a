"""Progress as a live view on a terminal.

It redraws only once a second, since the load generator may run on the same machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tuner.cli.terminal import harmless
from tuner.cli.ui.words import (
    best_texts,
    disturbances_text,
    done_text,
    load_text,
    outcome_text,
    point_text,
    progress_text,
    reason_text,
    round_text,
    started_text,
    verdict_text,
    warning_lines,
)
from tuner.progress.events import Events
from tuner.progress.follower import Follower, RunProgress, RunsView
from tuner.score.judge import SloOutcome
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.space.words import changes_text

_REDRAWS_PER_S = 1.0
#: Style of a round by its outcome; too few answers are not a miss.
_STYLES = {SloOutcome.MET: "", SloOutcome.MISSED: "red", SloOutcome.TOO_FEW: "yellow"}
#: Most rows of ended trials; free lines of the terminal; smallest width of a column.
_RECENT, _MARGIN, _LEAST = 6, 1, 10


@dataclass(frozen=True)
class LiveUi:
    verbosity: int = 0
    prints_json = False

    def run(self, *, details: bool = False) -> AbstractContextManager[Events]:
        return LiveEvents(_console(), details=details and self.verbosity >= 0)

    def runs(self) -> AbstractContextManager[RunsView]:
        return LiveRuns(_console())


def _console() -> Console:
    context = click.get_current_context(silent=True)
    return Console(stderr=True, no_color=context is not None and context.color is False)


class LiveEvents(Follower):
    """Shows the last trials, the best config with its margins, and the current step.

    The view fits the terminal: no line is wider, and there are no more lines.

    Args:
        details: At the end, print the warnings of measurements, each kind once.
    """

    def __init__(
        self,
        console: Console,
        *,
        details: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clock)
        self._console, self._details = console, details
        self._point = ""
        self._recent: list[_Row] = []
        self._failures: list[str] = []
        self._over = False
        # Last, since rich draws the first view in the constructor.
        self._live = Live(
            console=self._console,
            refresh_per_second=_REDRAWS_PER_S,
            get_renderable=self.view,
        )

    def __enter__(self) -> LiveEvents:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._do("done" if kind is None else "stopped")
        self._update(outlook=None)
        self._over = True
        self._live.stop()
        for line in warning_lines(self.warnings) if self._details else ():
            self.note(line)

    def started(self, run: Path, trials: int, space_size: int | None) -> None:
        super().started(run, trials, space_size)
        _print(self._console, started_text(run, trials, space_size), "bold")

    def step(self, text: str) -> None:
        super().step(text)
        self._live.refresh()  # a step may be shorter than a redraw period

    def note(self, text: str) -> None:
        _print(self._console, text, "dim")

    def measured(self, point: Point) -> None:
        super().measured(point)
        self._point = point_text(point)

    def round_over(self, what: str, sustained: Point) -> None:
        self._point = round_text(what, sustained)
        if not self.progress.trials:  # a check has rounds only
            self._end(_Row(what, point_text(sustained), "", _STYLES[sustained.outcome]))

    def trial_finished(self, trial: Trial, best: Trial | None) -> None:
        super().trial_finished(trial, best)
        failed = trial.state is TrialState.FAILED
        what, outcome = changes_text(trial.candidate, self.current), outcome_text(trial).short
        self._end(_Row(str(trial.number), what, outcome, "red" if failed else ""))
        if failed:
            failure = f"trial {trial.number}: {reason_text(trial)}"
            self._failures = [*self._failures, failure][-2:]

    def view(self) -> Group:
        """The current view. Lines that are too wide are cut, except the reasons of failures."""
        if self._over and not self._recent:
            return Group()  # nothing was measured; the error message follows
        failed = (self._wrapped(f"failed  {failure}", "red") for failure in self._failures)
        below = [line for lines in failed for line in lines]
        if self.best is not None:
            rate, slos = best_texts(self.best, self.progress.outlook)
            config = changes_text(self.best.candidate, self.current)
            below += [
                _line(f"best    {rate}  {config}", "green"),
                _line(f"        {slos}", "green"),
            ]
        if self.disturbances:
            below.append(_line(disturbances_text(self.disturbances), "dim"))
        below.append(_line(self._progress_line(), "bold"))
        below.append(_line(f"        {self.progress.doing}"))
        if now := self._now_line():
            below.append(_line(f"        {now}"))
        room = self._console.size.height - len(below) - _MARGIN
        return Group(*self._rows(self._recent[-max(room, 1) :]), *below)

    def _rows(self, rows: Sequence[_Row]) -> list[Text]:
        """Each row on one line, in columns; a narrow terminal cuts the middle column."""
        first = max((len(row.name) for row in rows), default=0)
        last = max((len(row.outcome) for row in rows), default=0)
        middle = max((len(r.what) for r in rows), default=0)
        middle = min(middle, max(self._console.size.width - first - last - 4, _LEAST))
        best = "" if self.best is None else str(self.best.number)
        lines = []
        for row in rows:
            what = _text(row.what)
            what.truncate(middle, overflow="ellipsis", pad=True)
            style = "green" if row.name == best else row.style
            name = _text(f"{row.name:>{first}}  ")
            line = Text.assemble(name, what, "  ", _text(row.outcome, style))
            line.no_wrap, line.overflow = True, "ellipsis"
            lines.append(line)
        return lines

    def _progress_line(self) -> str:
        minutes, seconds = divmod(int(self.elapsed_s), 60)
        parts = (done_text(self.progress), verdict_text(self.outlook_now))
        return f"{f'{minutes}:{seconds:02d}':<7} {'  '.join(filter(None, parts))}".rstrip()

    def _now_line(self) -> str:
        under_way = self.under_way
        now = self.step_text if under_way is None else load_text(under_way, self.clock())
        last = f"last: {self._point}" if now and self._point else self._point
        return "  ".join(filter(None, (now, last)))

    def _wrapped(self, text: str, style: str) -> list[Text]:
        """The text wrapped to the terminal, with control characters escaped."""
        lines = Text(harmless(text)).wrap(self._console, self._console.size.width)
        return [_line(line.plain, style) for line in lines]

    def _end(self, row: _Row) -> None:
        self._recent = [*self._recent, row][-_RECENT:]

    def _do(self, what: str) -> None:
        super()._do(what)
        self._point = ""


class LiveRuns:
    """One row for each run in progress, as far as the terminal has lines; notes scroll above."""

    def __init__(self, console: Console) -> None:
        self._runs: dict[str, RunProgress] = {}
        self._console = console
        self._live = Live(
            console=self._console, refresh_per_second=_REDRAWS_PER_S, get_renderable=self.view
        )

    def __enter__(self) -> LiveRuns:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._runs.clear()
        self._live.stop()

    def __call__(self, name: str, what: object) -> None:
        if isinstance(what, RunProgress):
            self._runs[name] = what
        elif what is None:
            self._runs.pop(name, None)
        else:
            _print(self._console, f"{name}: {what}", "dim")

    def view(self) -> Group:
        """The current view; only the latest runs if there is not enough room."""
        room = max(self._console.size.height - 2, 1)
        rows = [f"{n}  {progress_text(now)}  {now.doing}" for n, now in self._runs.items()]
        return Group(*map(_line, rows[-room:]))


class _Row(NamedTuple):
    """A trial or round that has ended: its number or name, its config or load, its outcome."""

    name: str
    what: str
    outcome: str
    style: str = ""


def _print(console: Console, text: str, style: str) -> None:
    """Prints above the view.

    The terminal wraps the line: rich might begin a line with text that a CI system executes.
    """
    console.print(_text(text, style), soft_wrap=True)


def _line(text: str, style: str = "") -> Text:
    return Text(harmless(text), style=style, no_wrap=True, overflow="ellipsis")


def _text(text: str, style: str = "") -> Text:
    """Text without active markup of rich and without escape sequences."""
    return Text(harmless(text), style=style)
