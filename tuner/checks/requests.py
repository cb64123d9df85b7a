"""Checks that requests fit their models, and notes about what they carry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tuner.checks.case import Case
from tuner.checks.recordings import RecordedFigures, figures_of
from tuner.errors import LoadFailedError, SpecError
from tuner.load.traffic.encoding import (
    TensorShape,
    content_bytes,
    drawn_bytes,
    inputs_of,
    misfits,
    resolve,
)
from tuner.load.traffic.request_file import read_requests
from tuner.load.traffic.wire import Content, ContentSize, json_bytes
from tuner.modelconfig.backends import may_set_batch
from tuner.modelconfig.base import unragged_inputs
from tuner.modelconfig.schema import enum_name, shape_tensors
from tuner.modelconfig.served import ServedModel
from tuner.spec.arrivals import RecordingArrivals
from tuner.spec.checks import written_bounds
from tuner.spec.fields import known
from tuner.spec.labels import of_label
from tuner.spec.mistakes import Finding, FindingSeverity, listed
from tuner.spec.paths import DYNAMIC_BATCHING, MAX_BATCH_SIZE
from tuner.spec.shapes import mixed_in, shape_places
from tuner.spec.units import Percent, bytes_text, count_text, digits
from tuner.spec.workload import (
    FileInputs,
    NoRepeat,
    Protocol,
    RandomInputs,
    RecordingInputs,
    StreamSpec,
)

#: A larger request mainly measures the network and the copies, perhaps unintentionally.
LARGE_BYTES = 1 << 20
#: Source: Triton's docs/protocol/extension_binary_data.md.
_NOT_IN_JSON = ("FP16", "BF16")


def drawn_tensors(stream: StreamSpec, model: ServedModel) -> tuple[tuple[TensorShape, ...], ...]:
    """The tensors of random requests, by shape, as far as config.pbtxt gives them.

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
        {name: dims for name, dims in known(shape.dims.items()) if name in there or not more}
        for shape in inputs.request_shapes
    ]


def check_rows(case: Case) -> Iterator[Finding]:
    """Refuses requests with more rows than max_batch_size of a model that they pass through."""
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


def check_json(case: Case) -> Iterator[Finding]:
    """Refuses 16-bit tensors in JSON: Triton sends and receives them in binary only."""
    if case.spec.workload.protocol is not Protocol.HTTP_JSON:
        return
    for name, stream in case.spec.streams.items():
        config = case.served.models[stream.model].base.completed
        for tensor in (*config.input, *config.output):
            if (datatype := enum_name(tensor, "data_type").removeprefix("TYPE_")) in _NOT_IN_JSON:
                whose = of_label(name, case.spec.streams)
                yield Finding(
                    ("workload", "protocol"),
                    f"{tensor.name}{whose} is {datatype}, which JSON does not have",
                    hint="write http",
                )


def note_full_batches(case: Case) -> Iterator[Finding]:
    """Notes that delay and preferred sizes have no effect where a request fills a batch."""
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
    """Refuses an SLO shorter than the resolution of a log: it depends on bursts that short."""
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
    """Refuses shapes of random requests that the model's inputs do not have."""
    for name, stream in case.spec.streams.items():
        model = case.served.models[stream.model]
        if not isinstance(stream.inputs, RandomInputs):
            continue
        at = {(k, t): where for k, t, where in shape_places(stream.inputs.shapes, name)}
        for number, dims in enumerate(_known_dims(stream, model)):
            for tensor, text in misfits(model.name, model.base.completed, dims):
                yield Finding(at[number, tensor], text, hint="see inputs.shapes of the spec")


def check_open_shapes(case: Case) -> Iterator[Finding]:
    """Refuses random requests without a size for dimensions that the config leaves open."""
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
        datatypes = {t.name: t.datatype for t in tensors if case.spec.workload.in_json}
        result = RecordedFigures.of(_sizes_in_file(stream.inputs, file.entries, datatypes))
        return replace(result, lengths=file.lengths)
    if case.traffic is None:
        return None
    return figures_of(
        stream.inputs,
        case.traffic,
        number,
        tensors,
        all_known=not more,
        in_json=case.spec.workload.in_json,
    )


def _sizes_in_file(
    inputs: FileInputs, entries: Sequence[Mapping[str, Content]], datatypes: Mapping[str, str]
) -> Iterator[Mapping[str, ContentSize]]:
    """The sizes of each entry's inputs; those with a datatype as JSON."""
    for number, entry in enumerate(entries, 1):
        sizes = {name: content.size for name, content in entry.items()}
        try:
            for name in entry.keys() & datatypes.keys():
                size = json_bytes(name, datatypes[name], entry[name])
                sizes[name] = ContentSize(entry[name].shape, size)
        except LoadFailedError as error:
            text = f"{inputs.file}: entry {number}: {error.message}"
            raise SpecError(text, error.hint) from error
        yield sizes


def _refuse_mixed_batches(
    entries: Sequence[Mapping[str, Content]], inputs: FileInputs, size: int
) -> None:
    """Refuses requests whose inferences have different inputs or shapes."""
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
    """Notes what a request of each stream carries, and what its figures count."""
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
        yield from _answer_notes(name, case)


def note_validation_data(case: Case) -> Iterator[Finding]:
    """Notes validation data, which only perf_analyzer compares answers with."""
    for name, stream in case.spec.streams.items():
        if isinstance(stream.inputs, FileInputs):
            text = stream.inputs.file.read_text(errors="replace")
            if '"validation_data"' in text:
                message = "answers are not compared with the validation_data of this file"
                at = ("streams", name, "inputs", "file")
                yield Finding(at, message, severity=FindingSeverity.MINOR)


def _drawn_notes(name: str, inputs: RandomInputs, case: Case) -> Iterator[Finding]:
    """Notes what the random requests of a stream carry, by shape."""
    stream, whose = case.spec.streams[name], of_label(name, case.spec.streams)
    model = case.served.models[stream.model]
    for shape, tensors in zip(inputs.request_shapes, drawn_tensors(stream, model), strict=False):
        in_json = case.spec.workload.in_json
        size = sum(drawn_bytes(tensor, inputs, in_json=in_json) for tensor in tensors)
        size *= stream.batch_size
        shapes = listed(f"{t.name} {_type_text(t)}{list(t.shape)}" for t in tensors)
        left = {t.name for t in model.base.completed.input} - {t.name for t in tensors}
        without = f" (without the optional {listed(sorted(left))})" if left else ""
        share = f"{Percent(shape.share)} of the requests{whose} carry"
        carries = share if shape.name else f"a request{whose} carries"
        size_text = f"about {bytes_text(size)} of JSON" if in_json else bytes_text(size)
        note = f"{carries} {size_text}: {shapes}{without}"
        if size > LARGE_BYTES:
            where = f"streams.{name}.inputs" if whose else "workload.inputs"
            note += f"; where your users send less, say so in {where}.shapes"
        yield _note(note, size)
    carried = {t.name for tensors in drawn_tensors(stream, model) for t in tensors}
    for tensor in sorted(carried & shape_tensors(model.base.completed)):
        yield Finding(
            ("streams", name, "inputs"),
            f"{tensor} is a shape tensor: its values are sizes, and random ones end in errors",
            hint="give requests by a file, inputs: {kind: file, file: requests.json}",
            severity=FindingSeverity.NOTED,
        )
    mixed = {tensor: len(entries) for tensor, entries in mixed_in(inputs.shapes).items()}
    yield from _apart_notes(name, case, mixed, f"inputs{whose}")


def _answer_notes(name: str, case: Case) -> Iterator[Finding]:
    """Notes the size of a stream's responses if they are large, as far as config.pbtxt gives it."""
    stream, known, least = case.spec.streams[name], list[TensorShape](), ""
    for output in case.served.models[stream.model].base.completed.output:
        datatype = enum_name(output, "data_type").removeprefix("TYPE_")
        if datatype in ("STRING", "INVALID") or min(output.dims, default=1) < 1:
            least = "at least "
        elif case.spec.workload.shared_outputs:
            continue
        if datatype not in ("STRING", "INVALID"):
            shape = tuple(max(dimension, 1) for dimension in output.dims)
            known.append(TensorShape(output.name, datatype, shape))
    sizes = {tensor.name: content_bytes(tensor, 0) for tensor in known}
    size = sum(sizes.values()) * stream.batch_size
    if size > LARGE_BYTES:
        largest = max(sizes, key=lambda output: sizes[output])
        yield _note(
            f"an answer{of_label(name, case.spec.streams)} carries {least}{bytes_text(size)}, most "
            f"of it in {largest}: sending it is in every latency here"
        )


def _type_text(tensor: TensorShape) -> str:
    """The datatype in words; config.pbtxt may leave it to the server."""
    return "of a type left to the server " if tensor.datatype == "INVALID" else tensor.datatype


def _file_notes(name: str, file: str, case: Case) -> Iterator[Finding]:
    """Notes number, size and shapes of the requests in a stream's file."""
    stream, recorded = case.spec.streams[name], case.recorded[name]
    least, most = bytes_text(recorded.least_bytes), bytes_text(recorded.most_bytes)
    what = "request" if stream.batch_size == 1 else "inference"
    size = f", {most}" if least == most else f", {least} to {most} each"
    size += " as JSON" * case.spec.workload.in_json
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
    searched = any(path.startswith(DYNAMIC_BATCHING) for path in case.space.paths_of(model))
    for tensor in unragged_inputs(case.served.models[model].base.completed, may_batch=searched):
        if shapes.get(tensor, 0) > 1:
            yield _note(
                f"{where}: {tensor} has {shapes[tensor]} different shapes and no "
                "allow_ragged_batch: requests of different shapes never share a batch"
            )


def _note(text: str, size: int | None = None) -> Finding:
    """``size``: bytes of the request that it is about; a run shows only notes on large ones."""
    small = size is not None and size <= LARGE_BYTES
    return Finding((), text, severity=FindingSeverity.MINOR if small else FindingSeverity.NOTED)
