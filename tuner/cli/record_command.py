"""`tune record`: makes a recording of requests from a trace, an access log or inputs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, count, cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tuner.cli import options
from tuner.cli.terminal import say, say_notes
from tuner.errors import SpecError

if TYPE_CHECKING:
    from tuner.load.traffic.recordings.making import LoggedRequest


def _shapes(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, list[str]]:
    """The dimensions of each input, from options of the form INPUT=DIM,...."""
    dims_by_input = {}
    for value in values:
        name, equals, dims = value.partition("=")
        dims_by_input[name] = [dim.strip() for dim in dims.split(",")]
        if not (name and equals and all(dims_by_input[name])):
            text = f"{value!r} is not of the form INPUT=DIM,..., such as input_ids=tokens"
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
    help="triton-trace: files of tritonserver --trace-config triton,file=FILE, or OpenTelemetry's "
    "spans of Triton; log: lines of usual servers and proxies (docs/recordings.md), JSON, W3C's "
    "extended format, or CSV with a header; inputs: perf_analyzer's JSON of inputs. Each may be "
    "packed with gzip.",
)
@click.option(
    "--time",
    metavar="COLUMN",
    help="log: column with the time of a request. Not needed for the logs of usual servers.",
)
@click.option(
    "--time-unit",
    type=click.Choice(["s", "ms", "us", "ns"]),
    help="log: unit of times that are numbers; dates must be in ISO 8601, and are in UTC if they "
    "have no zone.  [default: that of a usual server's column, else s]",
)
@click.option(
    "--took",
    metavar="COLUMN",
    default="",
    help="log: column with the duration of a request, if --time is the time of its response.",
)
@click.option(
    "--took-unit",
    type=click.Choice(["s", "ms", "us", "ns"]),
    default="s",
    show_default=True,
    help="log: unit of --took; a value with a unit, such as 34ms, keeps it.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    callback=_shapes,
    metavar="INPUT=DIM,...",
    help="log: shape of an input without the batch; each DIM is a whole number, or the name of a "
    "column with a length, such as input_ids=tokens. May be repeated.",
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
    "request's path names the model.",
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
    help="inputs: perf_analyzer's file of gaps between requests, in microseconds, instead of "
    "--rate; the inputs repeat until the file ends.",
)
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
def record_command(
    files: tuple[Path, ...],
    output: Path,
    source: str,
    time: str | None,
    time_unit: str | None,
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

    docs/recordings.md describes the lines of a recording.
    """
    from tuner.load.traffic.recordings.access_log import LogColumns, requests_of_log
    from tuner.load.traffic.recordings.making import Making, make_recording
    from tuner.load.traffic.recordings.triton_trace import requests_of_trace
    from tuner.spec.units import count_text, digits

    _refuse_options_of_others(source)
    if output in files:
        raise click.UsageError(f"{output} is both input and output: name another --output")
    if output.exists() and not force:
        raise SpecError(f"{output} already exists", "--force replaces it, --output names another")
    making = Making()
    if source == "log":
        columns = LogColumns(
            time or "",
            shapes,
            time_unit or "",
            stream,
            model,
            client,
            took,
            took_unit,
            by_path=named,
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
    for sentence, number in making.lines.items():
        say(f"note:  {count_text(number, 'line')}: {sentence}", err=True)
    say_notes(_repeats(output))
    say(f"next:  workload: {{arrivals: {{kind: recording, file: {output}}}}} in a spec", err=True)


#: Parameters without an effect on other sources.
_ONLY_OF = {
    "log": ("time", "time_unit", "took", "took_unit", "shapes", "stream", "model", "client"),
    "triton-trace": ("no_batch",),
    "inputs": ("rate", "intervals"),
}


def _refuse_options_of_others(source: str) -> None:
    """UsageError for an option of the command line that has no effect on this source."""
    context = click.get_current_context()
    for other, names in _ONLY_OF.items():
        for parameter in context.command.params:
            given = context.get_parameter_source(parameter.name or "")
            of_other = other != source and parameter.name in names
            if of_other and given is ParameterSource.COMMANDLINE:
                raise click.UsageError(
                    f"{parameter.opts[0]} has an effect with --from {other} only, not with {source}"
                )


def _repeats(recording: Path) -> Iterator[str]:
    """Notes on repeated requests, if the lines of the recording have inputs."""
    from tuner.load.traffic.recordings.duplicates import duplicates
    from tuner.load.traffic.recordings.lines import read_recording

    try:
        repeats = duplicates(read_recording(recording))
    except SpecError:  # such as a recording shorter than a second, which a run reports
        return
    yield from () if repeats is None else repeats.sentences()


def _of_inputs(
    files: tuple[Path, ...], rate: float | None, intervals: Path | None
) -> Iterator[LoggedRequest]:
    """The entries of the files in order, at a constant rate or with the gaps of a file."""
    from tuner.load.traffic.arrivals import read_trace
    from tuner.load.traffic.recordings.making import entries_at
    from tuner.load.traffic.request_file import data_of, not_inputs, place_in_data
    from tuner.spec.mistakes import listed

    if (rate is None) == (intervals is None):
        raise click.UsageError(
            "--from inputs needs either --rate or --intervals: a file of inputs has no times"
        )
    entries = list[dict[str, Any]]()
    for file in files:
        data = data_of(file)
        if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
            raise SpecError(
                f"{file}: data is not a list of requests (sequences are not supported)",
                "a spec of a model with sequences takes the file itself: workload.inputs: "
                f"{{kind: file, file: {file}}}",
            )
        for number, entry in enumerate(data):
            if wrong := not_inputs(entry):
                raise SpecError(
                    f"{place_in_data(file, (number,))}: entry {number + 1}: {listed(wrong)}: not "
                    "the values of an input",
                    "write an input's values in a list; the inputs of genai-perf and AIPerf for an "
                    "OpenAI endpoint are texts, which no tensor of a model has",
                )
        entries += data
    if intervals is None:
        return entries_at(entries, (k / (rate or 1.0) for k in count()))
    return entries_at(cycle(entries), accumulate(read_trace(intervals) / 1e6))
