"""Which of the ways to show progress a command uses."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.terminal import say, say_json_line
from tuner.errors import InterruptedRunError

if TYPE_CHECKING:
    from tuner.progress.events import Events

progress_option = click.option(
    "--progress",
    type=click.Choice(["auto", "live", "plain", "json", "none"]),
    default="auto",
    show_default=True,
    help="How to show progress; json: on stdout, one JSON object a line, the last one says how it "
    "ended.",
)


def choose_progress(progress: str, verbosity: int, *begins: Path) -> str:
    """The way to show progress; ``auto``: live on a terminal, except in CI or where it is verbose.

    A live view says here what it ``begins`` with: what follows is imported first, half a second.
    """
    if progress == "auto":
        plain = not sys.stderr.isatty() or os.environ.get("CI") or os.environ.get("TERM") == "dumb"
        progress = "plain" if plain or verbosity > 0 else "live"
    if progress == "live":
        say(f"reading {' '.join(map(str, begins))}", err=True)
    return progress


def shown_events(
    progress: str, verbosity: int, *, details: bool = False
) -> AbstractContextManager[Events]:
    """What shows a command's progress on stderr.

    Args:
        progress: From `choose_progress`.
        verbosity: Above 0: each measurement; below 0: less and less.
        details: Also what the measurements have to tell, each kind once.
    """
    if progress == "live":
        from tuner.cli.live import LiveEvents

        no_color = click.get_current_context().color is False
        return LiveEvents(no_color=no_color, details=details and verbosity >= 0)
    if progress == "none":
        from tuner.progress.events import Silent

        return nullcontext(Silent())
    if progress == "json":
        return _json_lines()
    from tuner.cli.console import PlainEvents

    return PlainEvents(verbosity + details)


@contextmanager
def _json_lines() -> Iterator[Events]:
    """A line for each event; the last one where it ends with an error is that error."""
    from tuner.progress.run_events import ToldEvents

    events = ToldEvents(lambda event: say_json_line(event.to_json()))
    try:
        yield events
    except BaseException as error:
        stopped = isinstance(error, InterruptedRunError | KeyboardInterrupt)
        code = 130 if stopped else getattr(error, "exit_code", 1)
        events.failed(str(error), code, stopped=stopped)
        raise


def refuse_two_answers(progress: str, output_format: str) -> None:
    """Usage error where both the progress and the result would be JSON on stdout."""
    if progress == "json" and output_format == "json":
        raise click.UsageError(
            "--progress json ends with a line that names the run, whose result.json is what "
            "--format json prints: give one of them"
        )
