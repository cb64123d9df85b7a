"""The live view of a run on a terminal. It redraws once a second: the load shares the machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tuner.cli.console import (
    Loading,
    Repeated,
    gain_text,
    point_text,
    progress_text,
    reason_text,
    slo_text,
    tightest_slo,
    value_text,
    verdict_text,
)
from tuner.cli.terminal import harmless
from tuner.measurement.measurement import LoadPoint
from tuner.progress.events import Outlook
from tuner.progress.posted import RunProgress
from tuner.report.quantities import margin_text
from tuner.score.judge import SloOutcome, too_few_text
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.space.words import changes_text
from tuner.spec.units import count_text, digits

_REDRAWS_PER_S = 1.0
#: Rows of what has ended, at most; the lines of the terminal left free; a column is never narrower.
_RECENT, _MARGIN, _LEAST = 6, 1, 10


class LiveEvents:
    """Shows the last trials, the best config with its margins, and what is done now.

    Lines are as wide as the terminal, and no more than it has.

    Args:
        details: Ends with what the measurements had to tell, each kind once.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        no_color: bool = False,
        details: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._details = clock, details
        self._console = console or Console(stderr=True, no_color=no_color)
        self._began = clock()
        self._trials = 0
        self._done = 0
        self._doing = "starting"
        self._step = self._point = ""
        self._load: Loading | None = None
        self._outlook: Outlook | None = None
        self._verdict_s = 0.0
        self._best: Trial | None = None
        self._current = Candidate()
        self._recent: list[_Row] = []
        self._failures: list[str] = []
        self._candidate_text = ""
        self._repeated = Repeated()
        self._over = False
        # Last: it draws a first view at once.
        self._live = Live(
            console=self._console,
            refresh_per_second=_REDRAWS_PER_S,
            get_renderable=self.view,
        )

    def __enter__(self) -> LiveEvents:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._now("done" if kind is None else "stopped")
        self._over, self._point, self._outlook = True, "", None
        self._live.stop()
        for line in self._repeated.warnings if self._details else ():
            self.note(line)

    def started(self, run: Path, trials: int, space_size: int | None) -> None:
        self._trials = trials
        size = "" if space_size is None else f" of {count_text(space_size, 'config')}"
        limits = f"up to {count_text(trials, 'trial')}{size}"
        self._console.print(_text("tune", "bold"), _text(f" {run}  {limits}"))

    def phase(self, text: str) -> None:
        self._now(text)
        self._point = ""

    def step(self, text: str) -> None:
        self._step, self._load = text, None
        self._live.refresh()  # it may last for less than a redraw

    def note(self, text: str) -> None:
        self._console.print(_text(text, "dim"))

    def disturbed(self, what: str, pause_s: float) -> None:
        self._repeated.disturbed += 1
        self.step(f"measured again in {pause_s:.0f} s: {what}")

    def trial_started(self, number: int, candidate: Candidate, current: Candidate) -> None:
        self._current = current
        self._candidate_text = changes_text(candidate, current)
        self._now(f"trial {number}: {self._candidate_text}")
        self._point = ""

    def loading(self, load: LoadPoint, takes_s: float) -> None:
        self._load = Loading(load, takes_s, self._clock())

    def outlook(self, outlook: Outlook) -> None:
        self._outlook, self._verdict_s = outlook, self._clock() + outlook.left_s

    def measured(self, point: Point) -> None:
        self._point, self._load = point_text(point), None
        self._repeated.warn(point.measurement.warnings)

    def round_over(self, what: str, sustained: Point) -> None:
        self._point = f"{what}: {point_text(sustained)}"
        if not self._trials:  # there are only rounds to show
            row = _Row(what, point_text(sustained), "", "" if sustained.passed else "red")
            self._recent = [*self._recent, row][-_RECENT:]

    def trial_finished(self, trial: Trial, best: Trial | None) -> None:
        self._done, self._best = trial.number + 1, best
        failed = trial.state is TrialState.FAILED
        row = _Row(
            str(trial.number), self._candidate_text, _outcome(trial), "red" if failed else ""
        )
        self._recent = [*self._recent, row][-_RECENT:]
        if failed:
            told = f"trial {trial.number}: {reason_text(trial)}"
            self._failures = [*self._failures, told][-2:]

    def ended(self, run: Path, status: str, exit_code: int) -> None:
        del run, status, exit_code

    def view(self) -> Group:
        """What is on the screen. Lines are cut where the terminal is too narrow, not reasons."""
        if self._over and not self._recent:
            return Group()  # an error follows, and nothing was measured
        below = [_text(f"failed  {failure}", "red") for failure in self._failures]
        if self._best is not None:
            below += [_line(text, "green") for text in self._best_lines(self._best)]
        if self._repeated.disturbed:
            below.append(_line(self._repeated.disturbed_text, "dim"))
        below.append(_line(self._progress_line(), "bold"))
        below.append(_line(f"        {self._doing}"))
        if now := self._now_line():
            below.append(_line(f"        {now}"))
        room = self._console.size.height - len(below) - _MARGIN
        return Group(*self._rows(self._recent[-max(room, 1) :]), *below)

    def _rows(self, rows: Sequence[_Row]) -> list[Text]:
        """Each on one line, in columns; where they find no room, the middle column is cut."""
        first, last = (max((len(c) for c in column), default=0) for column in _ends(rows))
        middle = max((len(r.what) for r in rows), default=0)
        middle = min(middle, max(self._console.size.width - first - last - 4, _LEAST))
        best = "" if self._best is None else str(self._best.number)
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

    def _best_lines(self, best: Trial) -> list[str]:
        """The incumbent, and its margin to each SLO."""
        point = _best_point(best)
        throughput = point.measurement.throughput_infer_per_s
        slos = "; ".join(f"{slo_text(s)}, {margin_text(s)}" for s in point.slo)
        gain = "" if self._outlook is None else gain_text(self._outlook)
        rate = ", ".join(filter(None, (f"{digits(throughput, 4)}/s", gain)))
        return [
            f"best    {rate}  {changes_text(best.candidate, self._current)}",
            f"        {slos}",
        ]

    def _progress_line(self) -> str:
        now_s = self._clock()
        done = f"{self._done}/{count_text(self._trials, 'trial')}" if self._trials else ""
        left = "" if self._outlook is None else verdict_text(self._verdict_s - now_s)
        return f"{_clock(now_s - self._began):<7} {'  '.join(filter(None, (done, left)))}".rstrip()

    def _now_line(self) -> str:
        now = self._step if self._load is None else self._load.text(self._clock())
        last = f"last: {self._point}" if now and self._point else self._point
        return "  ".join(filter(None, (now, last)))

    def _now(self, doing: str) -> None:
        self._doing, self._step, self._load = doing, "", None


class LiveRuns:
    """The runs that go on, a row each, as far as the terminal has lines; notes scroll above."""

    def __init__(self, console: Console | None = None, *, no_color: bool = False) -> None:
        self._runs: dict[str, RunProgress] = {}
        self._console = console or Console(stderr=True, no_color=no_color)
        self._live = Live(console=self._console, refresh_per_second=1.0, get_renderable=self.view)

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
            self._console.print(_text(f"{name}: {what}", "dim"))

    def view(self) -> Group:
        """What is on the screen; the runs that were heard last where there is no room for all."""
        room = max(self._console.size.height - 2, 1)
        rows = [f"{n}  {progress_text(now)}  {now.doing}" for n, now in self._runs.items()]
        return Group(*map(_line, rows[-room:]))


class _Row(NamedTuple):
    """A trial or round that has ended: its number or name, what it was, how it ended."""

    name: str
    what: str
    outcome: str
    style: str = ""


def _ends(rows: Sequence[_Row]) -> tuple[list[str], list[str]]:
    return [row.name for row in rows], [row.outcome for row in rows]


def _line(text: str, style: str = "") -> Text:
    return Text(harmless(text), style=style, no_wrap=True, overflow="ellipsis")


def _text(text: str, style: str = "") -> Text:
    """Text in which nothing is obeyed: neither rich's markup nor a terminal's escape sequences."""
    return Text(harmless(text), style=style)


def _best_point(trial: Trial) -> Point:
    assert trial.score is not None
    assert trial.score.best_point is not None
    return trial.points[trial.score.best_point]


def _outcome(trial: Trial) -> str:
    """Shorter than in a plain line: the reason for a failure and the SLOs are shown below."""
    if trial.state is TrialState.PRUNED and not trial.points:
        return "dropped: throughput too low"
    if trial.state is TrialState.FAILED or trial.score is None or not trial.points:
        return "failed"
    if trial.score.best_point is not None and trial.state is TrialState.MEASURED:
        point = _best_point(trial)
        rate = point.measurement.throughput_infer_per_s
        return f"{digits(rate, 4)}/s  {value_text(tightest_slo(point.slo))}"
    if trial.state is TrialState.PRUNED:
        return f"dropped: misses {trial.points[0].measurement.load}"
    if trial.outcome is SloOutcome.TOO_FEW:
        return too_few_text(min(trial.points, key=lambda p: p.level).slo)
    return f"misses an SLO at {trial.points[-1].measurement.load}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
