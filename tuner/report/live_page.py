"""The page of a run in progress: `report.html`, until the report replaces it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tuner.errors import InterruptedRunError
from tuner.progress.events import Silent
from tuner.report import html
from tuner.report.blocks import Document, Sentence, Tone, filled
from tuner.report.charts.load import load_charts
from tuner.report.charts.trials import history
from tuner.report.data import ReportData, load
from tuner.report.headline import worth_text
from tuner.report.quantities import seconds_text
from tuner.report.tables import change, field_importance, machine_text
from tuner.score.point import Point
from tuner.score.trial import Trial
from tuner.spec.units import count_text
from tuner.writing import write_text

#: Seconds after which a browser reloads the page.
REFRESH_S = 5
#: Rendering takes at most this share of one core, beside a load that shares the machine.
MOST_SHARE = 0.01


class LivePage(Silent):
    """Watches a run, and renders its page between measurements, never during one.

    Args:
        note: Receives the path of the page, or why it is no longer refreshed.
        render: Writes the page for a run's directory and its progress in words.
        clock: Returns seconds.
        cpu: Returns the CPU seconds of this thread.
    """

    def __init__(
        self,
        note: Callable[[str], object],
        render: Callable[[Path, str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._note, self._render = note, render or render_page
        self._clock, self._cpu = clock, cpu
        self._run: Path | None = None
        self._began = self._spent_s = self._last_s = 0.0
        self._trials = 0

    def started(self, run: Path, trials: int, space_size: int | None) -> None:
        del space_size
        self._run, self._trials, self._began = run, trials, self._clock()
        self._note(f"live page, refreshed after each trial: {run / 'report.html'}")
        self._refresh("0 trials")

    def trial_finished(self, trial: Trial, best: Trial | None) -> None:
        del best
        self._refresh(f"{trial.number + 1} of {count_text(self._trials, 'trial')}")

    def round_over(self, what: str, sustained: Point) -> None:
        del sustained
        self._refresh(f"proving, {what}")

    def _refresh(self, how_far: str) -> None:
        run = self._run
        allowed_s = MOST_SHARE * (self._clock() - self._began)
        if run is None or (self._last_s and self._spent_s + self._last_s > allowed_s):
            return
        before_s = self._cpu()
        try:
            self._render(run, how_far)
        except InterruptedRunError:  # a signal, not the page
            raise
        except Exception as error:  # a page must not end a run
            self._run = None
            self._note(f"the live page is no longer refreshed: {error}")
        self._last_s = self._cpu() - before_s
        self._spent_s += self._last_s


def render_page(run: Path, how_far: str) -> None:
    """Renders the page of a run in progress.

    Raises:
        UnreadableFileError: A file of the run is not as this version writes it.
        EnvironmentNotReadyError: The page cannot be written.
    """
    write_text(run / "report.html", html.render(running(load(run), how_far)))


def running(data: ReportData, how_far: str) -> Document:
    """The report of a run in progress, as far as it is known."""
    best = worth_text(data, data.best) or worth_text(data, data.current)
    return Document(
        name=data.model,
        headline=f"Running: {how_far}" + (f", best so far {best}" if best else ""),
        tone=Tone.PLAIN,
        kind="run",
        run_id=data.run_id,
        started_at=data.manifest.created_at,
        facts=(seconds_text(data.result.time.wall_s), machine_text(data.manifest)),
        blocks=filled(
            Sentence("Nothing is proved yet: figures are those of single measurements."),
            change(data),
            next(iter(load_charts(data)), None),
            history(data),
            field_importance(data),
        ),
        refresh_s=REFRESH_S,
    )
