"""Progress as JSON on stdout, one object a line: for programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from tuner.cli.terminal import say_json_line
from tuner.errors import InterruptedRunError
from tuner.progress.events import Events
from tuner.progress.follower import RunProgress, RunsView
from tuner.progress.run_events import RunEvents


@dataclass(frozen=True)
class JsonUi:
    verbosity: int = 0
    prints_json = True

    def run(self, *, details: bool = False) -> AbstractContextManager[Events]:
        del details
        return _lines()

    def runs(self) -> AbstractContextManager[RunsView]:
        return nullcontext(_line_of_several)


@contextmanager
def _lines() -> Iterator[Events]:
    """Prints a line for each event; an error of the run is the last line."""
    events = RunEvents(lambda event: say_json_line(event.to_json()))
    try:
        yield events
    except BaseException as error:
        stopped = isinstance(error, InterruptedRunError | KeyboardInterrupt)
        code = 130 if stopped else getattr(error, "exit_code", 1)
        events.failed(str(error), code, stopped=stopped)
        raise


def _line_of_several(name: str, what: object) -> None:
    """Prints the progress or a note of one of several runs."""
    if what is None:
        return
    facts: dict[str, object] = {"event": "note", "model": name, "text": str(what)}
    if isinstance(what, RunProgress):
        outlook = what.outlook
        facts = {
            "event": "progress",
            "model": name,
            "text": what.doing,
            "done": what.done,
            "trials": what.trials,
            "throughput_infer_per_s": what.best_infer_per_s,
            "left_s": None if outlook is None else outlook.left_s,
            "gain": None if outlook is None else outlook.gain,
        }
    say_json_line({key: value for key, value in facts.items() if value is not None})
