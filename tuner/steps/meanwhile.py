"""What a run needs later, made ready while it waits for servers, and never while it measures.

The first fit of the twin needs a simulator that takes about 15 s on one core to compile if that
was not done before, and reports need libraries that take seconds to import.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module

from tuner.bench.timebook import Phase, TimeBook
from tuner.spec.model import Spec, Strategy
from tuner.twin.compiling import compile_simulator

#: Something to do in pieces; it calls what it is given between them, and lets it raise.
Task = Callable[[Callable[[], None]], None]

#: Needed at once, and once the search is over.
_SOON = ("optuna", "scipy.optimize")
_LATE = ("jinja2", "plotly.offline", "matplotlib.backends.backend_agg")
#: A piece takes less than a second of a core; a machine that has none left is not waited for.
_PIECE_S = 10.0


class _OverError(Exception):
    """The run no longer needs it."""


@contextmanager
def meanwhile(spec: Spec, book: TimeBook) -> Iterator[None]:
    """Prepares in a thread of its own whatever the run of ``spec`` needs, in any phase but
    `Phase.MEASURING`. What fails here will fail again, and be reported, where it is needed.
    """
    compiles = [compile_simulator] if spec.search.strategy is Strategy.TWIN else []
    with warnings.catch_warnings():
        # Filters belong to all threads: numba puts back, in its own time, those it found.
        warnings.filterwarnings("ignore", ".*is an experimental feature")
        with done_aside([*_imports(_SOON), *compiles, *_imports(_LATE)], book):
            yield


def _imports(names: Sequence[str]) -> list[Task]:
    return [partial(_imported, name) for name in names]


def _imported(name: str, between: Callable[[], None]) -> None:
    between()
    import_module(name)


@contextmanager
def done_aside(tasks: Sequence[Task], book: TimeBook) -> Iterator[None]:
    """Does ``tasks`` one after the other, as long as the context is open."""
    aside = _Aside(tasks)
    with book.followed(aside.phase_begins):
        aside.start()
        try:
            yield
        finally:
            aside.end()


class _Aside:
    """A thread that rests while load is on."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        self._changed = threading.Condition()
        self._quiet = self._over = self._busy = False
        self._thread = threading.Thread(target=self._run, name="meanwhile", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self._thread.join(_PIECE_S)

    def phase_begins(self, phase: Phase) -> None:
        """Returns once the thread does as it should in this phase."""
        with self._changed:
            self._quiet = phase is Phase.MEASURING
            self._changed.notify_all()
            if self._quiet:
                self._changed.wait_for(lambda: not self._busy, _PIECE_S)

    def _run(self) -> None:
        for task in self._tasks:
            with suppress(Exception):
                self._rest()
                task(self._rest)
        with self._changed:
            self._busy = False
            self._changed.notify_all()

    def _rest(self) -> None:
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._over or not self._quiet)
            if self._over:
                raise _OverError
            self._busy = True
