"""How runs that go on side by side are shown: a row for each in one live view, or plain lines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import click

from tuner.cli.console import progress_text
from tuner.cli.terminal import say, say_json_line
from tuner.progress.posted import RunProgress

Heard = Callable[[str, object], None]


def view_of_several(progress: str, verbosity: int) -> AbstractContextManager[Heard]:
    """What shows several runs; ``progress`` and ``verbosity`` as for one."""
    if progress == "live":
        from tuner.cli.live import LiveRuns

        return LiveRuns(no_color=click.get_current_context().color is False)
    if progress == "json":
        return nullcontext(json_line)
    if progress == "none" or verbosity < -1:
        return nullcontext(lambda *_: None)
    return nullcontext(Lines(verbosity))


def json_line(name: str, what: object) -> None:
    """A line on stdout for what one of the runs reports: how far it is, or a note."""
    if what is None:
        return
    told: dict[str, object] = {"text": str(what)}
    if isinstance(what, RunProgress):
        outlook = what.outlook
        told = {
            "text": what.doing,
            "done": what.done,
            "trials": what.trials,
            "throughput_infer_per_s": what.best_infer_per_s,
            "left_s": None if outlook is None else outlook.left_s,
            "gain": None if outlook is None else outlook.gain,
        }
    kind = "progress" if isinstance(what, RunProgress) else "note"
    known = {key: value for key, value in told.items() if value is not None}
    say_json_line({"event": kind, "model": name, **known})


class Lines:
    """A line for each trial that has ended, and each note: CI logs, pipes."""

    def __init__(self, verbosity: int) -> None:
        self._verbosity = verbosity
        self._done: dict[str, int] = {}

    def __call__(self, name: str, what: object) -> None:
        if isinstance(what, RunProgress):
            if what.done and self._done.get(name) != what.done:
                self._done[name] = what.done
                say(f"{name}: {progress_text(what)}", err=True)
        elif what is not None and self._verbosity >= 0:
            say(f"{name}: {what}", err=True)
