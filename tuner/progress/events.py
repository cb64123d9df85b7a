"""What a run reports to its watchers: the terminal, CI logs and tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tuner.measurement.measurement import LoadPoint
from tuner.score.point import Point
from tuner.score.trial import Trial
from tuner.space.candidate import Candidate


@dataclass(frozen=True)
class Outlook:
    """How a run stands.

    Attributes:
        left_s: Until its verdict, about.
        gain: Of the best config over the current one, by the search; None where it is not known.
        at_least: The current config is only known to be no better than that.
    """

    left_s: float
    gain: float | None = None
    at_least: bool = False


class Events(Protocol):
    """All methods must return at once and cost almost nothing: the machine is measuring."""

    def started(self, run: Path, trials: int, space_size: int | None) -> None: ...

    def phase(self, text: str) -> None: ...

    def step(self, text: str) -> None:
        """What is done now, within the phase: `loading bert`."""

    def note(self, text: str) -> None: ...

    def disturbed(self, what: str, pause_s: float) -> None:
        """A measurement is made again after a pause, since it was disturbed: by ``what``."""

    def trial_started(self, number: int, candidate: Candidate, current: Candidate) -> None: ...

    def loading(self, load: LoadPoint, takes_s: float) -> None:
        """Load is put on what is deployed, for about so many seconds."""

    def measured(self, point: Point) -> None: ...

    def round_over(self, what: str, sustained: Point) -> None:
        """A config was measured again; ``sustained``: at the highest load that met every SLO."""

    def outlook(self, outlook: Outlook) -> None: ...

    def trial_finished(self, trial: Trial, best: Trial | None) -> None: ...

    def ended(self, run: Path, status: str, exit_code: int) -> None:
        """The last one of a run or a check that ended without an error."""


def _nothing(*_: object, **__: object) -> None:
    pass


class Silent:
    """Watches nothing."""

    started: Callable[..., None] = _nothing
    phase = step = note = disturbed = trial_started = loading = measured = round_over = started
    outlook = trial_finished = ended = started


class Tee(Silent):
    """Reports to several watchers, in this order."""

    def __init__(self, *watchers: Events) -> None:
        for name in (name for name in vars(Events) if not name.startswith("_")):
            setattr(self, name, _each([getattr(watcher, name) for watcher in watchers]))


def _each(methods: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def report(*facts: object, **named: object) -> None:
        for method in methods:
            method(*facts, **named)

    return report
