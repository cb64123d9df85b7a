"""Events that a run reports to its watchers: the terminal, CI logs and tests."""

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
    """How a run stands, by its search so far.

    Attributes:
        left_s: Estimated time until the verdict.
        gain: Capacity of the best config divided by the current config's; None if unknown.
        at_least: The gain is a lower bound: the current config's capacity is only known from above.
    """

    left_s: float
    gain: float | None = None
    at_least: bool = False


class Events(Protocol):
    """What happens in a run. Methods must return at once, since the machine is measuring."""

    def started(self, run: Path, trials: int, space_size: int | None) -> None: ...

    def phase(self, text: str) -> None: ...

    def step(self, text: str) -> None:
        """Reports the current step within the phase, such as `loading bert`."""

    def note(self, text: str) -> None: ...

    def disturbed(self, what: str, pause_s: float) -> None:
        """Reports that ``what`` disturbed a measurement: after a pause it is made again."""

    def trial_started(self, number: int, candidate: Candidate, current: Candidate) -> None: ...

    def loading(self, load: LoadPoint, takes_s: float) -> None:
        """Reports a load on the deployed config, for about ``takes_s`` seconds."""

    def measured(self, point: Point) -> None: ...

    def round_over(self, what: str, sustained: Point) -> None:
        """Reports the end of a round; ``sustained``: its highest load that met every SLO."""

    def outlook(self, outlook: Outlook) -> None: ...

    def trial_finished(self, trial: Trial, best: Trial | None) -> None: ...

    def ended(self, run: Path, status: str, exit_code: int, why: str = "") -> None:
        """Reports the end of a run or a check; no event follows. ``why``: its error, if any."""


def _nothing(*_: object, **__: object) -> None:
    pass


class Silent:
    """A watcher that ignores all events."""

    started: Callable[..., None] = _nothing
    phase = step = note = disturbed = trial_started = loading = measured = round_over = started
    outlook = trial_finished = ended = started


class Tee(Silent):
    """Passes events on to several watchers, in their order."""

    def __init__(self, *watchers: Events) -> None:
        for name in (name for name in vars(Events) if not name.startswith("_")):
            setattr(self, name, _each([getattr(watcher, name) for watcher in watchers]))


def _each(methods: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def report(*facts: object, **named: object) -> None:
        for method in methods:
            method(*facts, **named)

    return report
