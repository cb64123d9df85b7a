"""What requests carry, and whether that fits the models that they are sent to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tuner.checks.case import Case
from tuner.checks.recordings import RecordedFigures, figures_of
from tuner.errors import SpecError
from tuner.load.traffic.encoding import (
    TensorShape,
    inputs_of,
    misfits,
    request_bytes,
    resolve,
)
from tuner.load.traffic.request_file import read_requests
from tuner.load.traffic.wire import Content
from tuner.modelconfig.backends import may_set_batch
from tuner.modelconfig.base import unragged_inputs
from tuner.modelconfig.served import ServedModel
from tuner.spec.checks import written_bounds
from tuner.spec.labels import of_label
from tuner.spec.mistakes import Finding, FindingSeverity, listed
from tuner.spec.paths import DYNAMIC_BATCHING, MAX_BATCH_SIZE
from tuner.spec.shapes import mixed_in, shape_places
from tuner.spec.units import Percent, bytes_text, count_text, digits
from tuner.spec.workload import (
    FileInputs,
    NoRepeat,
    RandomInputs,
    RecordingArrivals,
    RecordingInputs,
    StreamSpec,
)

#: A larger request mainly measures the network and the copies, perhaps unintentionally.
LARGE_BYTES = 1 << 20


def drawn_tensors(stream: StreamSpec, model: ServedModel) -> tuple[tuple[TensorShape, ...], ...]:
    """What random requests carry, of each shape, as far as the config says it before a server does.

    Raises:
        SpecError: The spec does not say what the config leaves open.
    """
    every = _known_dims(stream, model)
    return tuple(resolve(model.name, model.base.completed, dims) for dims in every)


def _known_dims(stream: StreamSpec, model: ServedModel) -> list[Mapping[str, Sequence[int]]]:
    """The inputs that the config is known to have, for each shape of random requests."""
    inputs, base = stream.inputs, model.base
    if not isinstance(inputs, RandomInputs) or not base.completed.input:
        return []
    more = base.completes and not base.known  # inputs may come that the file does not have
    there = {tensor.name for tensor in base.completed.input}
    return [
        {name: dims for name, dims in shape.dims.items() if name in there or not more}
        for shape in inputs.request_shapes
    ]


def check_rows(case: Case) -> Iterator[Finding]:
    """A request has no more rows than a batch of each model that it goes through."""
    for name, stream in case.spec.streams.items():
        for label in case.served.answering([stream.model]) if stream.batch_size > 1 else ():
            model = case.served.models[label]
            size = model.base.completed.max_batch_size
            if size >= stream.batch_size or (model.base.completes and not model.base.known):
                continue
            takes = f"takes {size} at most" if size else "has no batch dimension"
            yield Finding(
                ("streams", name, "batch_size"),
                f"a request has {stream.batch_size} rows, and {label} {takes} "
                f"({model.place(MAX_BATCH_SIZE)})",
                hint=f"write a batch_size of {max(size, 1)} or less, or raise max_batch_size in "
                "config.pbtxt where the model takes larger batches",
            )


def note_full_batches(case: Case) -> Iterator[Finding]:
    """Notes that what forms batches changes nothing where two requests never fit into one."""
    for name, stream in case.spec.streams.items():
        for label in case.served.answering([stream.model]) if stream.batch_size > 1 else ():
            sizes = [case.served.models[label].base.completed.max_batch_size]
            parameters = [p for p in case.space.parameters if p.knob.owner == label]
            for parameter in parameters:
                if parameter.path == MAX_BATCH_SIZE:
                    sizes += [value for value in parameter if isinstance(value, int)]
            forms = any(p.path.startswith(DYNAMIC_BATCHING) for p in parameters)
            if forms and stream.batch_size <= max(sizes) < 2 * stream.batch_size:
                whose = of_label(name, case.spec.streams)
                yield Finding(
                    ("streams", name, "batch_size"),
                    f"a request{whose} fills a batch of {label}: no two share one, so its delay "
                    "and its preferred sizes change nothing",
                    hint=f"send fewer rows, or search a max_batch_size from "
                    f"{2 * stream.batch_size} on",
                    severity=FindingSeverity.NOTED,
                )


def check_resolution(case: Case) -> Iterator[Finding]:
    """An SLO depends on bursts as short as itself, which a log of whole seconds does not have."""
    recording = None if case.traffic is None else case.traffic.recording
    if recording is None or not recording.resolution_s:
        return
    shortest = f"{digits(recording.resolution_s)} s"
    for where, slo in written_bounds(case.spec):
        if slo.metric.is_latency and slo.bound < recording.resolution_s * 1e6:
            yield Finding(
                where,
                f"{slo} depends on bursts shorter than {shortest}, which {recording.path.name} "
                f"does not have: the times of its log are multiples of {shortest}",
                hint="log times in milliseconds, as nginx's $msec, and record again; or send "
                "requests at random times: arrivals: {kind: poisson}",
            )


def check_shapes(case: Case) -> Iterator[Finding]:
    """Shapes of random requests are those of the model's inputs."""
    for name, stream in case.spec.streams.items():
        model = case.served.models[stream.model]
        if not isinstance(stream.inputs, RandomInputs):
            continue
        at = {(k, t): where for k, t, where in shape_places(stream.inputs.shapes, name)}
        for number, dims in enumerate(_known_dims(stream, model)):
            for tensor, text in misfits(model.name, model.base.completed, dims):
                yield Finding(at[number, tensor], text, hint="see inputs.shapes of the spec")


def check_open_shapes(case: Case) -> Iterator[Finding]:
    """The spec says what random requests have in dimensions that the config leaves open."""
    for name, stream in case.spec.streams.items():
        model = case.served.models[stream.model]
        every = _known_dims(stream, model)
        if not any(any(misfits(model.name, model.base.completed, dims)) for dims in every):
            try:
                drawn_tensors(stream, model)
            except SpecError as error:
                yield from Finding.of(error, ("streams", name, "inputs"))


def figures(case: Case, number: int, name: str) -> RecordedFigures | None:
    """What a stream's file of requests holds, as far as the config says what fits; None: random.

    Raises:
        SpecError: Entries do not fit the model's inputs.
    """
    stream = case.spec.streams[name]
    if isinstance(stream.inputs, RandomInputs):
        return None
    base = case.served.models[stream.model].base
    more = base.completes and not base.known
    tensors = () if more and may_set_batch(base.file) else inputs_of(base.completed)
    if isinstance(stream.inputs, FileInputs):
        file = read_requests(stream.inputs.file, tensors, all_known=not more)
        _refuse_mixed_batches(file.entries, stream.inputs, stream.batch_size)
        result = RecordedFigures.of(
            {input_name: content.size for input_name, content in entry.items()}
            for entry in file.entries
        )
        return replace(result, lengths=file.lengths)
    if case.traffic is None:
        return None
    return figures_of(stream.inputs, case.traffic, number, tensors, all_known=not more)


def _refuse_mixed_batches(
    entries: Sequence[Mapping[str, Content]], inputs: FileInputs, size: int
) -> None:
    """All inferences of one request have the same inputs in the same shapes."""
    shapes = [{name: content.shape for name, content in entry.items()} for entry in entries]
    if size == 1 or all(shape == shapes[0] for shape in shapes):
        return
    for first in range(0, len(shapes) * size, size):  # then the same come again
        batch = [shapes[i % len(shapes)] for i in range(first, first + size)]
        if not isinstance(inputs.repeat, NoRepeat) or any(shape != batch[0] for shape in batch):
            raise SpecError(
                f"{inputs.file}: entry {first % len(shapes) + 1}: it and others make one request "
                f"of {size} inferences, and their shapes differ",
                "leave batch_size out, or use entries of equal shapes for each request",
            )


def note_requests(case: Case) -> Iterator[Finding]:
    """What a request of each stream carries, and what its figures count."""
    for name, stream in case.spec.streams.items():
        inputs, arrivals = stream.inputs, case.spec.workload.arrivals
        if stream.batch_size > 1:
            whose = of_label(name, case.spec.streams)
            yield _note(
                f"a request{whose} carries {stream.batch_size} inferences, which goodput and "
                "throughput count; loads are in requests"
            )
        if isinstance(inputs, FileInputs):
            yield from _file_notes(name, inputs.file.name, case)
        if isinstance(inputs, RecordingInputs) and isinstance(arrivals, RecordingArrivals):
            yield from _file_notes(name, arrivals.file.name, case)
        if isinstance(inputs, RandomInputs):
            yield from _drawn_notes(name, inputs, case)


def note_validation_data(case: Case) -> Iterator[Finding]:
    """What perf_analyzer would compare answers with."""
    for name, stream in case.spec.streams.items():
        if isinstance(stream.inputs, FileInputs):
            text = stream.inputs.file.read_text(errors="replace")
            if '"validation_data"' in text:
                message = "answers are not compared with the validation_data of this file"
                at = ("streams", name, "inputs", "file")
                yield Finding(at, message, severity=FindingSeverity.MINOR)


def _drawn_notes(name: str, inputs: RandomInputs, case: Case) -> Iterator[Finding]:
    """What the random requests of a stream carry, of each of their shapes."""
    stream, whose = case.spec.streams[name], of_label(name, case.spec.streams)
    model = case.served.models[stream.model]
    for shape, tensors in zip(inputs.request_shapes, drawn_tensors(stream, model), strict=False):
        size = request_bytes(tensors, inputs.string_length) * stream.batch_size
        shapes = listed(f"{t.name} {t.datatype}{list(t.shape)}" for t in tensors)
        left = {t.name for t in model.base.completed.input} - {t.name for t in tensors}
        without = f" (without the optional {listed(sorted(left))})" if left else ""
        share = f"{Percent(shape.share)} of the requests{whose} carry"
        carries = share if shape.name else f"a request{whose} carries"
        note = f"{carries} {bytes_text(size)}: {shapes}{without}"
        if size > LARGE_BYTES:
            where = f"streams.{name}.inputs" if whose else "workload.inputs"
            note += f"; where your users send less, say so in {where}.shapes"
        yield _note(note, size)
    mixed = {tensor: len(entries) for tensor, entries in mixed_in(inputs.shapes).items()}
    yield from _apart_notes(name, case, mixed, f"inputs{whose}")


def _file_notes(name: str, file: str, case: Case) -> Iterator[Finding]:
    """How many requests a stream's file has, how large, and of how many shapes."""
    stream, recorded = case.spec.streams[name], case.recorded[name]
    least, most = bytes_text(recorded.least_bytes), bytes_text(recorded.most_bytes)
    what = "request" if stream.batch_size == 1 else "inference"
    size = f", {most}" if least == most else f", {least} to {most} each"
    size *= bool(recorded.most_bytes)  # of inputs that only a server knows, nothing is known
    count = count_text(recorded.count, what)
    if recorded.lengths:
        fewest, most_steps = min(recorded.lengths), max(recorded.lengths)
        each = f"{fewest}" if fewest == most_steps else f"{fewest} to {most_steps}"
        count += f" in {count_text(len(recorded.lengths), 'sequence')} of {each}"
    text = f"{file}: {count}{size}"
    yield _note(text, recorded.most_bytes * stream.batch_size)
    yield from _apart_notes(name, case, recorded.shapes, file)


def _apart_notes(name: str, case: Case, shapes: Mapping[str, int], where: str) -> Iterator[Finding]:
    """The inputs by whose shapes, so many, the batcher keeps requests of a stream apart."""
    model = case.spec.streams[name].model
    paths = [p.path for p in case.space.parameters if p.knob.owner == model]
    searched = any(path.startswith(DYNAMIC_BATCHING) for path in paths)
    for tensor in unragged_inputs(case.served.models[model].base.completed, may_batch=searched):
        if shapes.get(tensor, 0) > 1:
            yield _note(
                f"{where}: {tensor} has {shapes[tensor]} different shapes and no "
                "allow_ragged_batch: requests of different shapes never share a batch"
            )


def _note(text: str, size: int | None = None) -> Finding:
    """``size``: bytes of the request that it is about; a run tells that of large ones only."""
    small = size is not None and size <= LARGE_BYTES
    return Finding((), text, severity=FindingSeverity.MINOR if small else FindingSeverity.NOTED)
