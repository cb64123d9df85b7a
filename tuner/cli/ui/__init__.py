"""Ways to show the progress of a command."""

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
        prints_json: It prints JSON lines on stdout, where nothing else may be printed.
    """

    @property
    def prints_json(self) -> bool: ...

    def run(self, *, details: bool = False) -> AbstractContextManager[Events]:
        """Shows one run or check.

        Args:
            details: Also show the warnings of measurements, each kind once.
        """

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


#: By the value of ``--progress``. A module is imported when it is chosen: `--help` is quick.
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
    help="How to show progress; json: one JSON object a line on stdout, of which the last says how "
    "the command ended.",
)


def choose_ui(progress: str, verbosity: int, *begins: Path) -> Ui:
    """Chooses the way to show progress; ``auto``: live on a terminal, unless in CI or verbose.

    Args:
        verbosity: Above 0: also each measurement; -1: neither rounds nor notes; -2: nothing.
        begins: Paths that the command reads first; the live view names them at once, since imports
            take half a second.
    """
    if progress == "auto":
        plain = not sys.stderr.isatty() or os.environ.get("CI") or os.environ.get("TERM") == "dumb"
        progress = "plain" if plain or verbosity > 0 else "live"
    if progress == "live":
        say(f"reading {' '.join(map(str, begins))}", err=True)
    return UIS[progress](verbosity)


def refuse_two_answers(progress: str, output_format: str) -> None:
    """Usage error if progress and result would both be JSON on stdout."""
    if progress == "json" and output_format == "json":
        raise click.UsageError(
            "--progress json and --format json both print JSON on stdout: give one of them (the "
            "last line of --progress json names the run, which has a result.json)"
        )
