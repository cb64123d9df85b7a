"""`tune record`: a recording of requests, made from what was written down elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, count, cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import options
from tuner.cli.terminal import say, say_notes
from tuner.errors import SpecError

if TYPE_CHECKING:
    from tuner.load.traffic.recordings.making import LoggedRequest


def _shapes(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, list[str]]:
    """Each INPUT=DIM,... as an input with its dimensions."""
    dims_by_input = {}
    for value in values:
        name, equals, dims = value.partition("=")
        dims_by_input[name] = [dim.strip() for dim in dims.split(",")]
        if not (name and equals and all(dims_by_input[name])):
            text = f"{value!r} is not INPUT=DIM,..., such as input_ids=tokens"
            raise click.BadParameter(text, ctx, param)
    return dims_by_input


@click.command("record")
@click.argument("files", nargs=-1, required=True, type=options.EXISTING_FILE)
@click.option(
    "-o",
    "--output",
    type=options.FILE,
    default=Path("requests.jsonl"),
    show_default=True,
    help="The recording to write.",
)
@click.option(
    "--from",
    "source",
    type=click.Choice(["triton-trace", "log", "inputs"]),
    required=True,
    help="triton-trace: files of tritonserver --trace-config triton,file=FILE; log: lines of nginx "
    "or Envoy, CSV with a header, or JSON lines; inputs: perf_analyzer's JSON of inputs.",
)
@click.option(
    "--time",
    metavar="COLUMN",
    help="log: column with the time of a request. Not needed for lines of nginx and Envoy, and for "
    "columns named like their variables.",
)
@click.option(
    "--time-unit",
    type=click.Choice(["s", "ms", "us", "ns"]),
    default="s",
    show_default=True,
    help="log: unit of times that are numbers; dates are in ISO 8601.",
)
@click.option(
    "--took",
    metavar="COLUMN",
    default="",
    help="log: column with the duration of a request, where --time is the time of its answer.",
)
@click.option(
    "--took-unit",
    type=click.Choice(["s", "ms", "us", "ns"]),
    default="s",
    show_default=True,
    help="log: unit of --took.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    callback=_shapes,
    metavar="INPUT=DIM,...",
    help="log: shape of an input without the batch; each DIM is a whole number, or a column with "
    "a length, such as input_ids=tokens. May be repeated.",
)
@click.option(
    "--stream", metavar="COLUMN", default="", help="log: column with the stream of a request."
)
@click.option(
    "--model", metavar="COLUMN", default="", help="log: column with the model of a request."
)
@click.option(
    "--client", metavar="COLUMN", default="", help="log: column with the client of a request."
)
@click.option(
    "--no-batch",
    is_flag=True,
    help="triton-trace: tensors have no batch dimension (max_batch_size: 0).",
)
@click.option(
    "--named",
    is_flag=True,
    help="triton-trace, log: record the model of each request, for several streams; in a log, the "
    "path names it.",
)
@click.option(
    "--rate",
    type=options.Quantity("Rate"),
    metavar="RATE",
    help="inputs: requests per second, such as 20/s.",
)
@click.option(
    "--intervals",
    type=options.EXISTING_FILE,
    help="inputs: perf_analyzer's file of gaps, in microseconds, instead of --rate; the inputs "
    "repeat until the file ends.",
)
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
def record_command(
    files: tuple[Path, ...],
    output: Path,
    source: str,
    time: str | None,
    time_unit: str,
    took: str,
    took_unit: str,
    shapes: dict[str, list[str]],
    stream: str,
    model: str,
    client: str,
    no_batch: bool,
    named: bool,
    rate: float | None,
    intervals: Path | None,
    force: bool,
) -> None:
    """Make a recording of requests from FILES, for arrivals of kind recording.

    docs/recordings.md says what a line of it holds.
    """
    from tuner.load.traffic.recordings.access_log import LogColumns, requests_of_log
    from tuner.load.traffic.recordings.making import Making, make_recording
    from tuner.load.traffic.recordings.triton_trace import requests_of_trace
    from tuner.spec.units import count_text, digits

    if output in files:
        raise click.UsageError(f"{output} is both read and written: name another --output")
    if output.exists() and not force:
        raise SpecError(f"{output} already exists", "--force replaces it, --output names another")
    making = Making()
    if source == "log":
        columns = LogColumns(
            time or "", shapes, time_unit, stream, model, client, took, took_unit, by_path=named
        )
        requests = requests_of_log(files, columns, making)
    elif source == "inputs":
        requests = _of_inputs(files, rate, intervals)
    else:
        requests = requests_of_trace(files, making, batched=not no_batch, named=named)
    make_recording(requests, output, making, of_a_log=source == "log")
    say(f"{output}: {count_text(making.requests, 'request')} in {digits(making.length_s)} s")
    for sentence, times in making.notes.items():
        about = f"{count_text(times, 'request')}: " if times else ""
        say(f"note:  {about}{sentence}", err=True)
    say_notes(_repeats(output))
    say(f"next:  workload: {{arrivals: {{kind: recording, file: {output}}}}} in a spec", err=True)


def _repeats(recording: Path) -> Iterator[str]:
    """What repeats in what was made, as far as its lines say what requests carry."""
    from tuner.load.traffic.recordings.duplicates import duplicates
    from tuner.load.traffic.recordings.lines import read_recording

    try:
        repeats = duplicates(read_recording(recording))
    except SpecError:  # such as one that is shorter than a second: a run says so
        return
    yield from () if repeats is None else repeats.sentences()


def _of_inputs(
    files: tuple[Path, ...], rate: float | None, intervals: Path | None
) -> Iterator[LoggedRequest]:
    """Entries one after the other, at a steady rate or by gaps."""
    from tuner.load.traffic.arrivals import read_trace
    from tuner.load.traffic.recordings.making import entries_at
    from tuner.load.traffic.request_file import data_of

    if (rate is None) == (intervals is None):
        raise click.UsageError("--from inputs needs --rate or --intervals: the file has no times")
    entries = list[dict[str, Any]]()
    for file in files:
        data = data_of(file)
        if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
            raise SpecError(f"{file}: data is no list of requests (sequences are not recorded)")
        entries += data
    if intervals is None:
        return entries_at(entries, (k / (rate or 1.0) for k in count()))
    return entries_at(cycle(entries), accumulate(read_trace(intervals) / 1e6))
