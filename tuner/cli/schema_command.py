"""`tune schema`: the JSON Schema of specs."""

from __future__ import annotations

import click

from tuner.cli.terminal import say_json


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of specs, for editors and validators.

    Name it in a spec's first line: # yaml-language-server: $schema=tune.schema.json
    """
    from tuner.spec.reference import json_schema

    say_json(json_schema())
