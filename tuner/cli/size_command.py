"""`tune size`: from the load that a run proved to replicas."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tuner.cli import options
from tuner.cli.terminal import say, say_document, say_json, say_notes


def _quantity(ctx: click.Context, param: click.Parameter, value: str) -> float:
    from tuner.spec.units import Percent, Rate

    try:
        return float(Rate.of(value) if param.name == "rate" else Percent.of(value))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


@click.command("size")
@options.run_argument
@click.option("--rate", required=True, callback=_quantity, help="In inferences, such as 5000/s.")
@click.option("--headroom", default="30%", show_default=True, callback=_quantity)
@click.option("--price", type=click.FloatRange(min=0), help="Of one replica for one hour.")
@click.option("--deployment", default="triton", show_default=True, help="What is scaled.")
@click.option("--prometheus", metavar="URL", default="http://prometheus:9090", show_default=True)
@options.results_option
@options.format_option(
    *("text", "json", "keda", "hpa"),
    help="What to print: keda is YAML of a ScaledObject that asks --prometheus, hpa of a "
    "HorizontalPodAutoscaler; both scale --deployment.",
)
def command(
    run: Path,
    rate: float,
    headroom: float,
    price: float | None,
    deployment: str,
    prometheus: str,
    output: Path,
    output_format: str,
) -> None:
    """Tell how many replicas answer a rate, and the headroom on top of it; when to start another.

    By the load that RUN proved in its soak, on one server: every replica must be like the machine
    of the run. Also tells whether the rate is still answered when one replica is lost.
    """
    del output  # read by the argument
    from tuner.report.autoscalers import pod_autoscaler, scaled_object
    from tuner.report.data import load
    from tuner.report.sizing import size
    from tuner.report.terminal import columns

    sizing = size(load(run), rate, headroom, price)
    if output_format == "json":
        say_json(asdict(sizing))
    elif output_format == "keda":
        say_document(scaled_object(sizing, deployment, prometheus))
    elif output_format == "hpa":
        say_document(pod_autoscaler(sizing, deployment))
    else:
        for line in columns(sizing.rows()):
            say(line.removeprefix("  "))
    say_notes(sizing.notes)
