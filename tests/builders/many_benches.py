"""Several benches of one run in this process: what is handed out first ends first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tuner.errors import TunerError
from tuner.fleet import BenchPlace, Done, Need
from tuner.meter.benches import Benches, BenchTask, Terms
from tuner.meter.session import Session


class SteppedFleet:
    """Each bench has a session of its own; what was submitted first ends first.

    Args:
        sessions: Makes the session of a bench by its name.
        errors: By bench, what ends its next pieces of work instead; None: nothing does.
        room: Benches that have room.
    """

    most = None

    def __init__(
        self,
        sessions: Callable[[str], Session],
        errors: dict[str, list[TunerError | None]] | None = None,
        room: int = 0,
    ) -> None:
        self._sessions, self._errors, self._room = sessions, errors or {}, room
        self._open: dict[str, Session] = {}
        self._works: deque[tuple[str, BenchTask]] = deque()
        self.most_at_once = 0

    def need(self, gpus: int | None, cpus: Sequence[int] = (), beside: int | None = None) -> Need:
        return Need(gpus or 0)

    def room(self, need: Need) -> int:
        return self._room

    def open(self, bench: str, *_: object) -> None:
        self._open[bench] = self._sessions(bench)

    def benches(self) -> Sequence[str]:
        return list(self._open)

    def submit(self, bench: str, work: Any) -> None:
        self._works.append((bench, work))
        self.most_at_once = max(self.most_at_once, len({b for b, w in self._works if w.work}))

    def next_done(self) -> Done:
        bench, task = self._works.popleft()
        error = next(iter(self._errors.get(bench, [])), None)
        if bench in self._errors:
            self._errors[bench] = self._errors[bench][1:]
        if error is not None:
            return Done(bench, error=error)
        try:
            value = None if task.work is None else task.work(self._open[bench])
        except TunerError as raised:
            return Done(bench, error=raised)
        return Done(bench, value)

    def close(self, bench: str) -> None:
        del self._open[bench]
        self._works = deque(w for w in self._works if w[0] != bench)


def benches_on(
    fleet: SteppedFleet, count: int, notes: list[str] | None = None, stopping: bool = False
) -> Benches:
    """So many benches that are ready."""
    lines = [] if notes is None else notes

    def opens(bench: str, need: Need) -> None:
        fleet.open(bench)
        benches.places[bench] = BenchPlace(f"host of {bench}", (len(benches.places),))

    benches = Benches(fleet, opens, Need(), Terms(Path("run")), lines.append, lambda: stopping)
    benches.open(count)
    for _ in range(count):
        benches.next_done()
    return benches
