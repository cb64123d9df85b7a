"""The progress of a run in a CI log or a pipe. All of it goes to stderr."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, assert_never

from tuner.bench.events import Outlook
from tuner.cli.terminal import say
from tuner.measurement.measurement import LoadPoint
from tuner.report.quantities import found_text
from tuner.score.judge import SloOutcome, SloResult, Verdict, rank, too_few_text
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.space.words import changes_text
from tuner.spec.units import count_text, digits

#: Nothing is told for this long, in seconds, at most.
QUIET_S = 30.0
_NEAR_S = 90.0


def point_text(point: Point) -> str:
    """`412/s ok, p99_latency 31.2 ms (<= 40 ms)`: the load, and the tightest SLO."""
    tightest = tightest_slo(point.slo)
    match point.outcome:
        case SloOutcome.MET:
            verdict = "ok"
        case SloOutcome.MISSED:
            unsteady = tightest.verdict is Verdict.NOT_STEADY
            verdict = f"not steady ({tightest.reason})" if unsteady else "missed"
        case SloOutcome.TOO_FEW:
            verdict = too_few_text(point.slo)
        case _:
            assert_never(point.outcome)
    return f"{point.measurement.load} {verdict}, {slo_text(tightest)}"


def tightest_slo(results: Sequence[SloResult]) -> SloResult:
    """The SLO with the worst verdict and, among those, the least margin.

    A bound of zero has no margin.
    """
    return min(results, key=lambda r: (rank(r.verdict), r.bound == 0, r.margin or 0.0))


def slo_text(result: SloResult) -> str:
    if result.value is None:
        return f"{result.metric} unknown ({result.expression})"
    return f"{result.metric} {found_text(result)} ({result.expression})"


def gain_text(outlook: Outlook) -> str:
    """`2.4x as good as current`; empty while that is not known."""
    if outlook.gain is None:
        return ""
    return f"{'at least ' * outlook.at_least}{digits(outlook.gain, 3)}x as good as current"


def verdict_text(left_s: float) -> str:
    """`verdict in about 4 min`, to the next 10 s where it is near."""
    if left_s <= 0.0:
        return "verdict later than foreseen"
    if left_s < _NEAR_S:
        return f"verdict in about {10 * math.ceil(left_s / 10)} s"
    return f"verdict in about {math.ceil(left_s / 60)} min"


class PlainEvents:
    """One stable line for each thing worth knowing, and a word each `QUIET_S`: CI logs, pipes."""

    def __init__(self, verbosity: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._verbosity, self._clock = verbosity, clock
        self._trials = 0
        self._started = self._told_s = clock()
        self._doing = "starting"
        self._load = ""
        self._outlook: tuple[Outlook, float] | None = None  # and when it was told
        self._over = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            self.say_if_quiet()

    def say_if_quiet(self) -> None:
        if self._clock() - self._told_s >= QUIET_S:
            self.note(f"still at it: {self._doing}{self._load}{self._outlook_text()}")

    def _outlook_text(self) -> str:
        if self._outlook is None:
            return ""
        outlook, told_s = self._outlook
        left_s = outlook.left_s - (self._clock() - told_s)
        best = gain_text(outlook)
        return f"; best so far {best}" * bool(best) + f"; {verdict_text(left_s)}"

    def started(self, run: Path, trials: int, space_size: int | None) -> None:
        self._trials = trials
        size = "" if space_size is None else f" of {count_text(space_size, 'config')}"
        self._say(f"run {run}: up to {count_text(trials, 'trial')}{size}")

    def phase(self, text: str) -> None:
        self._doing, self._load = text, ""
        self._say(f"{text} ...")

    def note(self, text: str) -> None:
        if self._verbosity >= 0:
            self._say(text)

    def trial_started(self, number: int, candidate: Candidate, current: Candidate) -> None:
        self._doing, self._load = changes_text(candidate, current), ""
        if self._verbosity > 0:
            self._say(f"trial {number}: {self._doing}")

    def loading(self, load: LoadPoint, takes_s: float) -> None:
        self._load = f", at {load}"

    def outlook(self, outlook: Outlook) -> None:
        self._outlook = outlook, self._clock()

    def measured(self, point: Point) -> None:
        if self._verbosity > 0:
            self._say(f"    {point_text(point)}")
        for warning in point.measurement.warnings if self._verbosity > 0 else ():
            self._say(f"      note: {warning}")

    def round_over(self, what: str, sustained: Point) -> None:
        if self._verbosity >= 0:
            self._say(f"  {what}: {point_text(sustained)}")

    def trial_finished(self, trial: Trial, best: Trial | None) -> None:
        mark = " *best*" if best is not None and best.number == trial.number else ""
        count = f"{trial.number + 1}/{self._trials}"
        outcome = f"{outcome_text(trial)}{mark}"
        self._say(f"{count}  trial {trial.number}  {self._doing}  ->  {outcome}")

    def _say(self, text: str) -> None:
        if self._verbosity < -1:
            return
        self._told_s = self._clock()
        minutes, seconds = divmod(int(self._told_s - self._started), 60)
        say(f"[{minutes:02d}:{seconds:02d}] {text}", err=True)


def outcome_text(trial: Trial) -> str:
    """How a trial ended, in a few words."""
    if trial.state is TrialState.PRUNED and not trial.points and trial.saturated is not None:
        return f"cannot win: answers at most {digits(trial.saturated.at_most_per_s or 0.0, 4)}/s"
    if trial.state is TrialState.FAILED or trial.score is None or not trial.points:
        return f"failed: {first_line(trial.reason or 'no reason given')}"
    if trial.state is TrialState.PRUNED:
        race, *less = trial.points
        sustained = "".join(f"; it sustains {p.measurement.load}" for p in less if p.passed)
        return f"cannot win: {point_text(race)}{sustained}"
    if trial.score.best_point is None:
        lowest = min(trial.points, key=lambda p: p.level)
        load, nearest = lowest.measurement.load, slo_text(tightest_slo(lowest.slo))
        if trial.outcome is SloOutcome.TOO_FEW:
            return f"{too_few_text(lowest.slo)} for a verdict at {load}: {nearest}"
        return f"misses the SLOs at every load tried, down to {load}: {nearest}"
    best = trial.points[trial.score.best_point]
    rate = best.measurement.throughput_infer_per_s
    least = "at least " if trial.limit else ""
    return f"{least}{digits(rate, 4)}/s within the SLOs, {slo_text(tightest_slo(best.slo))}"


def first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else text
