"""What a run reports to its watchers: the terminal, CI logs and tests."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from tuner.score.point import Point
from tuner.score.trial import Trial
from tuner.space.candidate import Candidate


class Events(Protocol):
    """All methods must return at once and cost almost nothing: the machine is measuring."""

    def started(self, run: Path, trials: int, space_size: int | None) -> None: ...

    def phase(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def trial_started(self, number: int, candidate: Candidate, current: Candidate) -> None: ...

    def measured(self, point: Point) -> None: ...

    def round_over(self, what: str, sustained: Point) -> None:
        """A config was measured again; ``sustained``: at the highest load that met every SLO."""

    def trial_finished(self, trial: Trial, best: Trial | None) -> None: ...


class Silent:
    """Watches nothing."""

    def started(self, *_: object, **__: object) -> None:
        pass

    phase = note = trial_started = measured = round_over = trial_finished = started
