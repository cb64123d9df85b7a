"""`tune report`: renders a run again from what is stored."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tuner.cli.options import results_option
from tuner.errors import SpecError


@click.command("report")
@click.argument(
    "run", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@results_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="What stdout gets; the files of the run are rendered in any case.",
)
def command(run: Path | None, output: Path, output_format: str) -> None:
    """Render the reports of RUN again, or list the runs there are.

    Works from what is stored, also for a run that failed or was interrupted.
    """
    if run is None:
        _list_runs(output, output_format)
        return
    from tuner.cli.verdict import lines_of
    from tuner.report.render import render_all
    from tuner.run.store import RunStore

    store = RunStore.open(run)
    files = render_all(run)
    result = store.result()
    if output_format == "markdown":
        click.echo((run / "report.md").read_text(encoding="utf-8"), nl=False)
    elif output_format == "json":
        click.echo(json.dumps(result, indent=2))
    else:
        for line in lines_of(run, result) if result else [f"{run}: no result yet"]:
            click.echo(line)
    click.echo(f"rendered {', '.join(str(f.name) for f in files)} in {run}", err=True)


def _list_runs(output: Path, output_format: str) -> None:
    from tuner.run.store import MANIFEST, RunStore

    if output_format == "markdown":
        raise SpecError("a list of runs is text or json", "name a run to have its markdown")
    runs = [RunStore(p.parent) for p in sorted(output.glob(f"*/{MANIFEST}"))]
    rows = []
    for store in runs:
        result = store.result()
        status = "no result yet" if result is None else result["status"]
        rows.append({"run": str(store.directory), "status": status})
    if output_format == "json":
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(f"{row['status']:<13}  {row['run']}")
    if not rows:
        click.echo(f"no runs under {output}; `tune run SPEC` makes one", err=True)
