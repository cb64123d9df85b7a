"""The command line in a test: how a command ended, and what it printed."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

import click
import pytest

from tuner.cli import cli
from tuner.cli.boundary import guarded


class Tune:
    """Runs `tune` with arguments; ``out`` and ``err`` are what the last call printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: object, command: click.Command = cli) -> int:
        self._capsys.readouterr()
        code = guarded(command, [str(argument) for argument in arguments])
        self.out, self.err = self._capsys.readouterr()
        return code


def called(*words: str) -> tuple[int, str, str]:
    """How `tune` with these words ends, and what it prints on both streams."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = guarded(cli, [*words])
    return code, out.getvalue(), err.getvalue()
