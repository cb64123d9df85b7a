"""The live view of a run on a terminal. It redraws once a second: the load shares the machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tuner.bench.events import Outlook
from tuner.cli.console import first_line, gain_text, point_text, tightest_slo, verdict_text
from tuner.cli.terminal import harmless
from tuner.measurement.measurement import LoadPoint
from tuner.report.quantities import found_text, margin_text
from tuner.score.judge import SloOutcome, SloResult, too_few_text
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.space.words import changes_text
from tuner.spec.units import count_text, digits

_REDRAWS_PER_S = 1.0
_RECENT = 6


class LiveEvents:
    """Shows trial n of N, what is going on, the incumbent with its margins, the last outcomes."""

    def __init__(
        self,
        console: Console | None = None,
        *,
        no_color: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._console = console or Console(stderr=True, no_color=no_color)
        self._began = clock()
        self._run: Path | None = None
        self._trials = 0
        self._done = 0
        self._doing = "starting"
        self._load = self._point = ""
        self._outlook: Outlook | None = None
        self._verdict_s = 0.0
        self._best: Trial | None = None
        self._current = Candidate()
        self._recent: list[tuple[str, Trial]] = []
        self._failures: list[str] = []
        self._candidate_text = ""
        # Last: it draws a first view at once.
        self._live = Live(
            console=self._console,
            refresh_per_second=_REDRAWS_PER_S,
            get_renderable=self.view,
        )

    def __enter__(self) -> LiveEvents:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._doing, self._load, self._point, self._outlook = "done", "", "", None
        self._live.stop()

    def started(self, run: Path, trials: int, space_size: int | None) -> None:
        self._run, self._trials = run, trials
        size = "" if space_size is None else f" of {count_text(space_size, 'config')}"
        limits = f"up to {count_text(trials, 'trial')}{size}"
        self._console.print(_text("tune", "bold"), _text(f" {run}  {limits}"))

    def phase(self, text: str) -> None:
        self._doing, self._load, self._point = text, "", ""

    def note(self, text: str) -> None:
        self._console.print(_text(text, "dim"))

    def trial_started(self, number: int, candidate: Candidate, current: Candidate) -> None:
        self._current = current
        self._candidate_text = changes_text(candidate, current)
        self._doing, self._point = f"trial {number}: {self._candidate_text}", ""
        self._load = "deploying"

    def loading(self, load: LoadPoint, takes_s: float) -> None:
        self._load = f"at {load} for {takes_s:.0f} s"

    def outlook(self, outlook: Outlook) -> None:
        self._outlook, self._verdict_s = outlook, self._clock() + outlook.left_s

    def measured(self, point: Point) -> None:
        self._point = point_text(point)

    def round_over(self, what: str, sustained: Point) -> None:
        self._point = f"{what}: {point_text(sustained)}"

    def trial_finished(self, trial: Trial, best: Trial | None) -> None:
        self._done, self._best = trial.number + 1, best
        self._recent = [*self._recent, (self._candidate_text, trial)][-_RECENT:]
        if trial.state is TrialState.FAILED:
            reason = first_line(trial.reason or "no reason given")
            self._failures = [*self._failures, f"trial {trial.number}: {reason}"][-2:]

    def view(self) -> Group:
        """What is on the screen. Lines are cut where the terminal is too narrow, not reasons."""
        lines: list[Text | Table] = [self._recent_table()] if self._recent else []
        lines += [_text(f"failed  {failure}", "red") for failure in self._failures]
        if self._best is not None:
            lines += [_line(text, "green") for text in self._best_lines(self._best)]
        lines.append(_line(self._progress_line(), "bold"))
        last = f"last: {self._point}" if self._load and self._point else self._point
        if told := "  ".join(filter(None, (self._load, last))):
            lines.append(_line(f"        {told}"))
        return Group(*lines)

    def _best_lines(self, best: Trial) -> list[str]:
        """The incumbent, and its margin to each SLO."""
        point = _best_point(best)
        throughput = point.measurement.throughput_infer_per_s
        slos = "; ".join(f"{s.expression}: {_value(s)}, {margin_text(s)}" for s in point.slo)
        gain = "" if self._outlook is None else gain_text(self._outlook)
        rate = ", ".join(filter(None, (f"{digits(throughput, 4)}/s", gain)))
        return [
            f"best    {rate}  {changes_text(best.candidate, self._current)}",
            f"        {slos}",
        ]

    def _progress_line(self) -> str:
        now_s = self._clock()
        left = "" if self._outlook is None else f"  {verdict_text(self._verdict_s - now_s)}"
        elapsed = _clock(now_s - self._began)
        done = f"{self._done}/{count_text(self._trials, 'trial')}"
        return f"{elapsed:<7} {done}{left}  {self._doing}"

    def _recent_table(self) -> Table:
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis")
        table.add_column(no_wrap=True)
        for name, trial in self._recent:
            style = "red" if trial.state is TrialState.FAILED else ""
            is_best = self._best is not None and trial.number == self._best.number
            table.add_row(
                Text(f"{trial.number:>6}"),
                _text(name),
                _text(_outcome(trial), "green" if is_best else style),
            )
        return table


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
        return "cannot win: answers too little"
    if trial.state is TrialState.FAILED or trial.score is None or not trial.points:
        return "failed"
    if trial.score.best_point is not None and trial.state is TrialState.MEASURED:
        point = _best_point(trial)
        tightest = tightest_slo(point.slo)
        rate = point.measurement.throughput_infer_per_s
        return f"{digits(rate, 4)}/s  {tightest.metric} {_value(tightest)}"
    if trial.state is TrialState.PRUNED:
        return f"cannot win: misses {trial.points[0].measurement.load}"
    if trial.outcome is SloOutcome.TOO_FEW:
        return too_few_text(min(trial.points, key=lambda p: p.level).slo)
    return f"misses an SLO at {trial.points[-1].measurement.load}"


def _value(slo: SloResult) -> str:
    return "unknown" if slo.value is None else found_text(slo)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
