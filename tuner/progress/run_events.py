"""Events of a run as values: a line of `--progress json`, an item of `tuner.start_run`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from tuner.measurement.measurement import LoadPoint
from tuner.modelconfig.values import FieldValue
from tuner.progress.events import Outlook
from tuner.score.point import Point
from tuner.score.trial import Trial
from tuner.sentences import sentence
from tuner.space.candidate import Candidate


class EventKind(StrEnum):
    STARTED = "started"
    PHASE = "phase"
    STEP = "step"
    NOTE = "note"
    DISTURBED = "disturbed"
    TRIAL_STARTED = "trial started"
    LOADING = "loading"
    MEASURED = "measured"
    TRIAL = "trial"
    ROUND = "round"
    OUTLOOK = "outlook"
    ENDED = "ended"


@dataclass(frozen=True)
class RunEvent:
    """Something that happened in a run; fields that do not apply to the kind are None.

    Attributes:
        at_s: Seconds since the first event.
        run: Directory of the run.
        trials: Trials in the budget.
        space_size: Configs in the space; None if the space is not finite.
        text: A phase, a step, a note, the name of a round, or the reason of an end.
        trial: Number of the trial, from 0.
        fields: Values that the trial changes from the current config, by field.
        state: For a trial measured, pruned or failed; for a run or check its final status.
        load: Of a measurement: requests per second, or clients of a closed loop.
        takes_s: Estimated duration of the load or the pause.
        met_slos: Whether every SLO was met; None with too few answers for a verdict.
        throughput_infer_per_s: Inferences per second at the load; for a trial, at the highest load
            that met the SLOs.
        p99_latency_us: 99th percentile of the latency at the same load.
        best: Whether the trial is the best so far.
        left_s: Estimated time until the verdict.
        gain: Capacity of the best config divided by the current config's.
        exit_code: Exit code of `tune`.
    """

    kind: EventKind
    at_s: float
    run: str | None = None
    trials: int | None = None
    space_size: int | None = None
    text: str | None = None
    trial: int | None = None
    fields: Mapping[str, FieldValue] | None = None
    state: str | None = None
    load: float | None = None
    takes_s: float | None = None
    met_slos: bool | None = None
    throughput_infer_per_s: float | None = None
    p99_latency_us: float | None = None
    best: bool | None = None
    left_s: float | None = None
    gain: float | None = None
    exit_code: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values: the kind as `event`, then every field that applies."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "kind"}
        known = {name: value for name, value in values.items() if value is not None}
        return {"event": self.kind.value, **known, "at_s": round(self.at_s, 3)}


class RunEvents:
    """Converts each event of a run into a `RunEvent`, and passes it on.

    Args:
        pass_on: Receives each event; must return at once.
        clock: Returns seconds.
    """

    def __init__(
        self, pass_on: Callable[[RunEvent], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pass_on, self._clock = pass_on, clock
        self._began = clock()
        self._current = Candidate()
        self._ended = False

    def _event(self, kind: EventKind, **facts: Any) -> None:
        self._pass_on(RunEvent(kind, self._clock() - self._began, **facts))

    def started(self, run: Path, trials: int, space_size: int | None) -> None:
        self._event(EventKind.STARTED, run=str(run), trials=trials, space_size=space_size)

    def phase(self, text: str) -> None:
        self._event(EventKind.PHASE, text=text)

    def step(self, text: str) -> None:
        self._event(EventKind.STEP, text=text)

    def note(self, text: str) -> None:
        self._event(EventKind.NOTE, text=text)

    def disturbed(self, what: str, pause_s: float) -> None:
        self._event(EventKind.DISTURBED, text=what, takes_s=pause_s)

    def trial_started(self, number: int, candidate: Candidate, current: Candidate) -> None:
        self._current = current
        changed = _changes(candidate, current)
        self._event(EventKind.TRIAL_STARTED, trial=number, fields=changed)

    def loading(self, load: LoadPoint, takes_s: float) -> None:
        self._event(EventKind.LOADING, load=load.level, takes_s=takes_s)

    def measured(self, point: Point) -> None:
        self._event(EventKind.MEASURED, **_figures(point))

    def round_over(self, what: str, sustained: Point) -> None:
        self._event(EventKind.ROUND, text=what, **_figures(sustained))

    def outlook(self, outlook: Outlook) -> None:
        self._event(EventKind.OUTLOOK, left_s=outlook.left_s, gain=outlook.gain)

    def trial_finished(self, trial: Trial, best: Trial | None) -> None:
        score = trial.score
        at = None if score is None else score.best_point
        self._event(
            EventKind.TRIAL,
            trial=trial.number,
            fields=_changes(trial.candidate, self._current),
            state=trial.state.value,
            best=best is not None and best.number == trial.number,
            text=None if trial.reason is None else sentence(trial.reason),
            **({} if at is None else _figures(trial.points[at])),
        )

    def ended(self, run: Path, status: str, exit_code: int, why: str = "") -> None:
        self._ended = True
        facts = {"run": str(run), "state": status, "exit_code": exit_code}
        self._event(EventKind.ENDED, text=why or None, **facts)

    def failed(self, error: str, exit_code: int, *, stopped: bool = False) -> None:
        """Reports an error of a run that has no directory yet; no event follows."""
        state = "interrupted" if stopped else "failed"
        if not self._ended:
            self._event(EventKind.ENDED, text=error, state=state, exit_code=exit_code)


def _changes(candidate: Candidate, current: Candidate) -> dict[str, FieldValue]:
    return {
        candidate.title(knob): candidate.values.get(knob) for knob in candidate.changed(current)
    }


def _figures(point: Point) -> dict[str, Any]:
    measured = point.measurement
    return {
        "load": measured.load.level,
        "met_slos": point.outcome.met,
        "throughput_infer_per_s": measured.throughput_infer_per_s,
        "p99_latency_us": measured.p99_latency_us,
    }
