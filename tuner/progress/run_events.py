"""What a run reports, as values: a line of `--progress json`, an item of `tuner.start_run`."""

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
    """Something that happened in a run; what does not apply to its kind is None.

    Attributes:
        at_s: Seconds since the watching began.
        run: Directory of the run.
        trials: Those of the budget.
        space_size: Configs in the space; None where it is not finite.
        text: A phase, a step, a note, the name of a round, or why something ended so.
        trial: Its number, from 0.
        fields: What the trial changes of the current config, by field.
        state: measured, pruned or failed of a trial; the status of a run or check that has ended.
        load: Of a measurement: requests per second, or how many are in flight at once.
        takes_s: How long the load or the pause lasts, about.
        met_slos: Every SLO was met; None where there were too few answers to say.
        throughput_infer_per_s: Of the load, or of the highest load at which a trial met the SLOs.
        p99_latency_us: The same.
        best: The trial is the best so far.
        left_s: Until the verdict, about.
        gain: Of the best config over the current one, as a ratio.
        exit_code: What `tune` ends with.
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
        """Plain values: the kind as `event`, then whatever applies to it."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "kind"}
        known = {name: value for name, value in values.items() if value is not None}
        return {"event": self.kind.value, **known, "at_s": round(self.at_s, 3)}


class RunEvents:
    """Passes each event of a run on as a value.

    Args:
        pass_on: Must return at once.
        clock: In seconds.
    """

    def __init__(
        self, pass_on: Callable[[RunEvent], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pass_on, self._clock = pass_on, clock
        self._began = clock()
        self._current = Candidate()

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

    def ended(self, run: Path, status: str, exit_code: int) -> None:
        self._event(EventKind.ENDED, run=str(run), state=status, exit_code=exit_code)

    def failed(self, error: str, exit_code: int, *, stopped: bool = False) -> None:
        """The last event of a run that ended with an error."""
        state = "interrupted" if stopped else "failed"
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
