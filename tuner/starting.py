"""A run that a Python program starts, in a notebook or a pipeline."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from tuner.machine.stop import Stop
from tuner.prepare.job import Request
from tuner.progress.events import Tee
from tuner.progress.run_events import RunEvent, RunEvents
from tuner.record.result_schema import Result
from tuner.report.frames import RunFrames, read_run
from tuner.report.live_page import LivePage
from tuner.report.render import report_run
from tuner.run.ending import Finished
from tuner.run.run import run
from tuner.run.trust import state_directory


class StartedRun:
    """A run in a separate thread; iterating over it gives its events until it ends.

    As a context manager it stops the run where the block is left early. A program that ends
    without waiting for a run waits for it all the same.

    Attributes:
        directory: Directory of the run; None before the run has one.
    """

    def __init__(self, request: Request) -> None:
        self.directory: Path | None = None
        self._events = SimpleQueue[RunEvent | None]()
        self._stop = Stop()
        self._ended: Finished | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(request,), name="tune run")
        self._thread.start()

    def _run(self, request: Request) -> None:
        events = RunEvents(self._put)
        try:
            self._ended = run(request, Tee(events, LivePage(events.note)), report_run, self._stop)
            self.directory = self._ended.directory
        except BaseException as error:
            self._error = error
        finally:
            self._events.put(None)

    def _put(self, event: RunEvent) -> None:
        if event.run is not None:
            self.directory = Path(event.run)
        self._events.put(event)

    def __iter__(self) -> Iterator[RunEvent]:
        """What happened since the last call and what happens from now on, once each.

        Raises:
            TunerError: The run ended with this error.
        """
        while (event := self._events.get()) is not None:
            yield event
        self._events.put(None)  # so that it ends at once for whoever comes next
        self.result()

    def stop(self) -> None:
        """Ends it after the measurement under way, as Ctrl-C does; it can be resumed."""
        self._stop.requested = True

    def result(self) -> Result:
        """How it ended, as `result.json` has it. Waits for that.

        Raises:
            TunerError: The run ended with this error; `InterruptedRunError` where it was stopped.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._ended is not None
        return self._ended.result

    def frames(self) -> RunFrames:
        """Its trials, load points and proof as pandas tables: of a run that goes on, so far.

        Raises:
            RuntimeError: It has no directory yet.
        """
        if self.directory is None:
            raise RuntimeError("the run has no directory yet: wait for its event 'started'")
        return read_run(self.directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        self._thread.join()


def start_run(
    spec: Path | str,
    *,
    output: Path | str = "results",
    trials: int | None = None,
    time_budget_s: float | None = None,
    seed: int | None = None,
    write: bool = True,
    overrides: Sequence[str] = (),
    resume: Path | str | None = None,
) -> StartedRun:
    """Starts what `tune run SPEC` does, in a thread; iterate over it for its events.

    Needs the extra `run`, and `local` for a server on this machine. See docs/python.md.

    Args:
        spec: File of the spec.
        output: Directory that runs are stored in.
        trials: Most configs to measure; None: as the spec says.
        time_budget_s: Most seconds of the search.
        seed: Of the search.
        write: Write a winner that proved better into the model repository.
        overrides: Values of the spec, such as ``budget.trials=3``.
        resume: Directory of an interrupted run to go on with.
    """
    return StartedRun(
        Request(
            spec=Path(spec),
            output=Path(output),
            resume=None if resume is None else Path(resume),
            trials=trials,
            time_budget_s=time_budget_s,
            seed=seed,
            write=write,
            overrides=tuple(overrides),
            environment=dict(os.environ),
            command=("tuner.start_run",),
            state=state_directory(os.environ),
        )
    )
