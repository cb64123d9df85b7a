"""`tune schema`: the JSON Schema of specs."""

from __future__ import annotations

import json

import click


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of specs, for editors and validators.

    Name it in a spec's first line: # yaml-language-server: $schema=tune.schema.json
    """
    from tuner.spec.schema import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
