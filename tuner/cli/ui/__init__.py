"""How a command shows its progress: one object for all of it, in one of several ways."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from tuner.cli.terminal import say

if TYPE_CHECKING:
    from tuner.progress.events import Events
    from tuner.progress.follower import RunsView


class Ui(Protocol):
    """A way to show progress.

    Attributes:
        prints_json: Stdout has a line of JSON for each event, and nothing else.
    """

    @property
    def prints_json(self) -> bool: ...

    def run(self, *, details: bool = False) -> AbstractContextManager[Events]:
        """Shows one run or check; ``details``: also the warnings of measurements, by kind."""

    def runs(self) -> AbstractContextManager[RunsView]:
        """Shows several runs side by side."""


@dataclass(frozen=True)
class SilentUi:
    verbosity: int = 0
    prints_json = False

    def run(self, *, details: bool = False) -> AbstractContextManager[Events]:
        from tuner.progress.events import Silent

        del details
        return nullcontext(Silent())

    def runs(self) -> AbstractContextManager[RunsView]:
        return nullcontext(lambda *_: None)


def _live(verbosity: int) -> Ui:
    from tuner.cli.ui.live import LiveUi

    return LiveUi(verbosity)


def _plain(verbosity: int) -> Ui:
    from tuner.cli.ui.plain import PlainUi

    return PlainUi(verbosity)


def _json(verbosity: int) -> Ui:
    from tuner.cli.ui.json_lines import JsonUi

    return JsonUi(verbosity)


#: Each is imported when it is chosen: `--help` is quick.
UIS: Mapping[str, Callable[[int], Ui]] = {
    "live": _live,
    "plain": _plain,
    "json": _json,
    "none": SilentUi,
}

progress_option = click.option(
    "--progress",
    type=click.Choice(["auto", *UIS]),
    default="auto",
    show_default=True,
    help="How to show progress; json: on stdout, one JSON object a line, the last one says how it "
    "ended.",
)


def choose_ui(progress: str, verbosity: int, *begins: Path) -> Ui:
    """The way to show progress; ``auto``: live on a terminal, except in CI or where it is verbose.

    The live view first says what the command ``begins`` to read: imports take half a second.

    Args:
        verbosity: Above 0: each measurement; below 0: less and less.
    """
    if progress == "auto":
        plain = not sys.stderr.isatty() or os.environ.get("CI") or os.environ.get("TERM") == "dumb"
        progress = "plain" if plain or verbosity > 0 else "live"
    if progress == "live":
        say(f"reading {' '.join(map(str, begins))}", err=True)
    return UIS[progress](verbosity)


def refuse_two_answers(progress: str, output_format: str) -> None:
    """Usage error where both the progress and the result would be JSON on stdout."""
    if progress == "json" and output_format == "json":
        raise click.UsageError(
            "--progress json ends with a line that names the run, whose result.json is what "
            "--format json prints: give one of them"
        )
