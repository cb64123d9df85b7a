"""The commands and options that sentences name exist."""

from __future__ import annotations

import re

import click
from builders.documents import PAGES, TOP

from tuner.cli import COMMANDS, cli

NAMED = re.compile(r"`tune\s+([a-z]+)\b([^`]*)`")


def test_every_command_and_option_in_a_sentence_is_one_of_tune() -> None:
    options = {
        name: {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
        for name in COMMANDS
        if (command := cli.get_command(click.Context(cli), name))
    }
    named = [
        (str(page.relative_to(TOP)), found[1], set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", found[2])))
        for page in PAGES
        for found in NAMED.finditer(page.read_text())
    ]
    assert len(named) > 100
    unknown = [n for n in named if n[1] not in options or n[2] - options[n[1]]]
    assert unknown == []
