"""The progress of a run in a CI log or a pipe. All of it goes to stderr."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, assert_never

from tuner.cli.terminal import say
from tuner.measurement.measurement import LoadPoint
from tuner.progress.events import Outlook
from tuner.progress.posted import RunProgress
from tuner.report.quantities import found_text, metric_text
from tuner.score.judge import SloOutcome, SloResult, Verdict, rank, too_few_text
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.sentences import sentence
from tuner.space.candidate import Candidate
from tuner.space.words import changes_text
from tuner.spec.labels import of_stream
from tuner.spec.metrics import METRICS, Better
from tuner.spec.units import count_text, digits

#: Nothing is told for this long, in seconds, at most.
QUIET_S = 30.0
#: A verdict that is farther is told in minutes; a load that lasts longer tells how far it is.
_FAR_S, _LONG_S = 600.0, 5.0
_NUMBER = re.compile(r"\d[\d.,]*")


def point_text(point: Point) -> str:
    """`412/s ok, p99 latency 31.2 ms (<= 40 ms)`: the load, and the tightest SLO."""
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
    """`p99 latency 31.2 ms (<= 40 ms)`."""
    bound = metric_text(result.metric, result.bound)
    sign = "<=" if METRICS[result.metric].better is Better.LOWER else ">="
    return f"{value_text(result)} ({sign} {bound})"


def value_text(result: SloResult) -> str:
    """`p99 latency 31.2 ms`."""
    found = "unknown" if result.value is None else found_text(result)
    return f"{of_stream(result.stream, METRICS[result.metric].words)} {found}"


def gain_text(outlook: Outlook) -> str:
    """`2.4x as good as current`; empty while that is not known."""
    if outlook.gain is None:
        return ""
    return f"{'at least ' * outlook.at_least}{digits(outlook.gain, 3)}x as good as current"


def verdict_text(left_s: float) -> str:
    """`verdict in about 3:50`, to the next 10 s; to the next minute where it is far."""
    if left_s <= 0.0:
        return "taking longer than estimated"
    if left_s > _FAR_S:
        return f"verdict in about {math.ceil(left_s / 60)} min"
    seconds = 10 * math.ceil(left_s / 10)
    left = f"{seconds} s" if seconds < 60 else "{}:{:02d}".format(*divmod(seconds, 60))
    return f"verdict in about {left}"


def progress_text(now: RunProgress) -> str:
    """`3/20 trials, best 412/s, 1.3x as good as current, verdict in about 2 min`."""
    done = f"{now.done}/{count_text(now.trials, 'trial')}" if now.trials else ""
    best = "" if now.best_infer_per_s is None else f"best {digits(now.best_infer_per_s, 4)}/s"
    outlook = now.outlook
    gain, left = ("", "") if outlook is None else (gain_text(outlook), verdict_text(outlook.left_s))
    return ", ".join(filter(None, (done, best, gain, left)))


@dataclass(frozen=True)
class Loading:
    """A load that is on a server now.

    Attributes:
        takes_s: How long it lasts, about.
        since_s: When it began, by the clock of its watcher.
    """

    load: LoadPoint
    takes_s: float
    since_s: float

    def text(self, now_s: float) -> str:
        """`at 372/s for 3 s`; of a long one how far it is: `at 372/s, 12 of 30 s`."""
        if self.takes_s <= _LONG_S:
            return f"at {self.load} for {self.takes_s:.0f} s"
        past_s = min(now_s - self.since_s, self.takes_s)
        return f"at {self.load}, {past_s:.0f} of {self.takes_s:.0f} s"


class Repeated:
    """What measurements have to tell again and again: counted, and told once at the end."""

    def __init__(self) -> None:
        self.disturbed = 0
        self._warnings: dict[str, tuple[str, int]] = {}  # by the sentence without its numbers

    def warn(self, sentences: Sequence[str]) -> None:
        for text in sentences:
            kind = _NUMBER.sub("#", text)
            first, count = self._warnings.get(kind, (text, 0))
            self._warnings[kind] = first, count + 1

    @property
    def disturbed_text(self) -> str:
        """Empty where nothing was disturbed."""
        if not self.disturbed:
            return ""
        return f"measured again after a disturbance: {count_text(self.disturbed, 'time')}"

    @property
    def warnings(self) -> list[str]:
        """Each kind of warning once, with its count."""
        return [f"note{f', {n} times' * (n > 1)}: {first}" for first, n in self._warnings.values()]


class PlainEvents:
    """One stable line for each thing worth knowing, and a word each `QUIET_S`: CI logs, pipes."""

    def __init__(self, verbosity: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._verbosity, self._clock = verbosity, clock
        self._trials = 0
        self._started = self._told_s = clock()
        self._doing = "starting"
        self._step = ""
        self._load: Loading | None = None
        self._outlook: tuple[Outlook, float] | None = None  # and when it was told
        self._repeated = Repeated()
        self._over = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._repeated.disturbed > 1:  # the first was told
            self.note(self._repeated.disturbed_text)
        for warning in self._repeated.warnings:
            self.note(warning)

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            self.say_if_quiet()

    def say_if_quiet(self) -> None:
        now_s = self._clock()
        if now_s - self._told_s >= QUIET_S:
            now = self._step if self._load is None else self._load.text(now_s)
            self.note(f"still running: {', '.join(filter(None, (self._doing, now)))}{self._left()}")

    def _left(self) -> str:
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
        self._now(text)
        self._say(f"{text} ...")

    def step(self, text: str) -> None:
        self._step, self._load = text, None

    def note(self, text: str) -> None:
        if self._verbosity >= 0:
            self._say(text)

    def disturbed(self, what: str, pause_s: float) -> None:
        self._repeated.disturbed += 1
        if self._repeated.disturbed == 1:
            self.note(f"{what} Measured again in {pause_s:.0f} s.")

    def trial_started(self, number: int, candidate: Candidate, current: Candidate) -> None:
        self._now(changes_text(candidate, current))
        if self._verbosity > 0:
            self._say(f"trial {number}: {self._doing}")

    def loading(self, load: LoadPoint, takes_s: float) -> None:
        self._load = Loading(load, takes_s, self._clock())

    def outlook(self, outlook: Outlook) -> None:
        self._outlook = outlook, self._clock()

    def measured(self, point: Point) -> None:
        self._load = None
        if self._verbosity > 0:
            self._say(f"    {point_text(point)}")
            self._repeated.warn(point.measurement.warnings)

    def round_over(self, what: str, sustained: Point) -> None:
        if self._verbosity >= 0:
            self._say(f"  {what}: {point_text(sustained)}")

    def trial_finished(self, trial: Trial, best: Trial | None) -> None:
        mark = " *best*" if best is not None and best.number == trial.number else ""
        count = f"{trial.number + 1}/{self._trials}"
        outcome = f"{outcome_text(trial)}{mark}"
        self._say(f"{count}  trial {trial.number}  {self._doing}  ->  {outcome}")

    def ended(self, run: Path, status: str, exit_code: int) -> None:
        del run, status, exit_code

    def _now(self, doing: str) -> None:
        self._doing, self._step, self._load = doing, "", None

    def _say(self, text: str) -> None:
        if self._verbosity < -1:
            return
        self._told_s = self._clock()
        minutes, seconds = divmod(int(self._told_s - self._started), 60)
        say(f"[{minutes:02d}:{seconds:02d}] {text}", err=True)


def reason_text(trial: Trial) -> str:
    """Why a trial failed, in one line."""
    return "no reason given" if trial.reason is None else first_line(sentence(trial.reason))


def outcome_text(trial: Trial) -> str:
    """How a trial ended, in a few words."""
    if trial.state is TrialState.PRUNED and not trial.points and trial.saturated is not None:
        return f"dropped: at most {digits(trial.saturated.at_most_per_s or 0.0, 4)}/s"
    if trial.state is TrialState.FAILED or trial.score is None or not trial.points:
        return f"failed: {reason_text(trial)}"
    if trial.state is TrialState.PRUNED:
        race, *less = trial.points
        sustained = "".join(f"; sustains {p.measurement.load}" for p in less if p.passed)
        return f"dropped: {point_text(race)}{sustained}"
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
