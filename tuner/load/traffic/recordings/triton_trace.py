"""Requests in Triton's own trace files, as ``--trace-config triton,file=FILE`` writes them.

A file is an array of activities, each with the id of a request (docs/user_guide/trace.md of
triton-inference-server/server). Only level TENSORS has the values of tensors, and not exactly for
every type: floats have six digits, texts and bytes are not separated from each other, and halves
are missing (TraceTensorActivity in server's src/tracer.cc). `otel_trace` reads spans.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.errors import SpecError
from tuner.load.traffic.recordings.json_elements import ElementError, elements
from tuner.load.traffic.recordings.lines import MOST_BYTES
from tuner.load.traffic.recordings.making import LoggedRequest, Making
from tuner.load.traffic.recordings.otel_trace import has_spans, requests_of_spans
from tuner.load.traffic.source_files import opened_source

#: Moments of a request's arrival, the most accurate first. gRPC's wait starts before the arrival.
_CAME = ("HTTP_RECV_START", "GRPC_WAITREAD_END", "REQUEST_START")
_INPUT = "TENSOR_QUEUE_INPUT"
#: Types whose values can be read exactly.
_READ: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("INT16", "INT32", "INT64", "UINT16", "UINT32", "UINT64"), int),
    **dict.fromkeys(("FP32", "FP64"), float),
    "BOOL": lambda text: bool(int(text)),
}
#: Most requests with interleaved activities; beyond it, the oldest counts as complete.
_MOST_OPEN = 10_000
#: With more inferences in one request, its first dimension cannot be a batch.
_MOST_INFERENCES = 10_000
_NEXT = re.compile(r',\s*(?={"id":)')
#: A tensor whose data is not JSON: Triton writes texts unescaped.
_TENSOR = re.compile(
    r'{"id":(\d{1,18}),"activity":"(\w+)","tensor":{"name":"([^"]*)","data":.*'
    r'"shape":"([\d,]*)","dtype":"(\w+)"}}',
    re.DOTALL,
)
_DECODER = json.JSONDecoder(strict=False)
_TENSOR_KEYS = ("name", "shape", "dtype", "data")
_SHAPE = re.compile(r"(?:\d{1,9}(?:,\d{1,9})*)?")
#: Ids and moments have 64 bits.
_LARGEST = 1 << 63
_CHUNK = 1 << 20
_HINT = (
    "give the files of --trace-config triton,file=FILE, with rate=1 and level=TIMESTAMPS, or "
    "spans of OpenTelemetry (docs/recordings.md)"
)

NO_VALUES = "shapes and no values: their tensors are of a type that a trace does not keep"
NO_TENSORS = "times only: trace with level=TENSORS as well, or say in the spec what they carry"
NO_TIME = "no time, left out: trace with level=TIMESTAMPS"
SPLIT = "several inferences, of which each is a request of the recording at the same moment"
ROUNDED = "floats with the six digits that a trace has"
TIMES_ONLY = "times only: say in the spec what they carry"
CUT = "the last one cut off in the file, left out"


@dataclass
class _Traced:
    """What a trace shows of one request.

    Attributes:
        place: Place of its first activity.
        child: A model or an ensemble sent the request.
        moments_ns: Time of each activity by name.
        inputs: Tensors by name; the last one of a name counts.
    """

    place: str
    model: str = ""
    child: bool = False
    moments_ns: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, dict[str, str]] = field(default_factory=dict)


def requests_of_trace(
    paths: Sequence[Path], making: Making, *, batched: bool, named: bool
) -> Iterator[LoggedRequest]:
    """The requests in trace files, without those that models and ensembles sent themselves.

    Args:
        making: Receives notes about requests that are left out or changed.
        batched: The first dimension of tensors is the batch.
        named: Each line gets the name of its model.

    Raises:
        SpecError: A file is not a trace.
    """
    for path in paths:
        under_way: dict[int, _Traced] = {}
        for place, activity in _activities(path, making):
            if has_spans(activity):
                for request in requests_of_spans(activity, place, named=named):
                    making.note(TIMES_ONLY)
                    yield request
                continue
            number = activity["id"]
            _add(under_way.setdefault(number, _Traced(place)), activity)
            if len(under_way) > _MOST_OPEN:
                yield from _requests(under_way.pop(next(iter(under_way))), making, batched, named)
        for traced in under_way.values():
            yield from _requests(traced, making, batched, named)


def _add(traced: _Traced, activity: dict[str, Any]) -> None:
    if "model_name" in activity:
        traced.model = activity["model_name"]
        traced.child = "parent_id" in activity
    for moment in activity.get("timestamps", ()):
        traced.moments_ns[moment["name"]] = moment["ns"]
    if activity.get("activity") == _INPUT:
        traced.inputs[activity["tensor"]["name"]] = activity["tensor"]


def _requests(
    traced: _Traced, making: Making, batched: bool, named: bool
) -> Iterator[LoggedRequest]:
    if traced.child:
        return
    at_ns = next((traced.moments_ns[name] for name in _CAME if name in traced.moments_ns), None)
    if at_ns is None:
        making.note(NO_TIME, traced.place)
        return
    row: dict[str, Any] = {"model": traced.model} if named else {}
    rows = _rows(traced, making, batched)
    if len(rows) > 1:
        making.note(SPLIT)
    for content in rows:
        yield LoggedRequest(at_ns / 1e9, {**row, **content}, traced.place)


def _rows(traced: _Traced, making: Making, batched: bool) -> list[dict[str, Any]]:
    """The inputs of each inference of a request: values, or else shapes."""
    inputs = [*traced.inputs.values()]
    shapes = {t["name"]: [int(d) for d in t["shape"].split(",") if d] for t in inputs}
    if not inputs or not all(shapes.values()):
        making.note(NO_TENSORS)
        return [{}]
    count = next(iter(shapes.values()))[0] if batched else 1
    if count > _MOST_INFERENCES:
        raise SpecError(
            f"{traced.place}: a request of {count:,} inferences, by the first dimension of its "
            f"tensors; the limit is {_MOST_INFERENCES:,}",
            "use --no-batch if the first dimension is not a batch (max_batch_size: 0)",
        )
    dims = {name: shape[1:] if batched else shape for name, shape in shapes.items()}
    kept = all(tensor["dtype"] in _READ for tensor in inputs)
    values = [_values(tensor, shapes[tensor["name"]], count) for tensor in inputs] if kept else []
    parts = [value for value in values if value is not None]
    if len(parts) < len(inputs):
        making.note(NO_VALUES)
        return [{"shapes": dims}] * count
    if any(tensor["dtype"] in ("FP32", "FP64") for tensor in inputs):
        making.note(ROUNDED)
    return [
        {
            "inputs": {
                name: {"content": part[k], "shape": dims[name]}
                for name, part in zip(dims, parts, strict=True)
            }
        }
        for k in range(count)
    ]


def _values(tensor: dict[str, str], shape: Sequence[int], count: int) -> list[list[Any]] | None:
    """The values of each of ``count`` inferences; None if they cannot be read."""
    try:
        read = [_READ[tensor["dtype"]](text) for text in tensor.get("data", "").split(",")]
    except ValueError:
        return None
    each = len(read) // max(count, 1)
    if len(read) != math.prod(shape) or each * count != len(read):
        return None
    return [read[k * each : (k + 1) * each] for k in range(count)]


def _activities(path: Path, making: Making) -> Iterator[tuple[str, dict[str, Any]]]:
    """The array's elements, each with its place; the array may be cut short by a kill."""
    empty = True
    with opened_source(path) as file:
        chunks = iter(lambda: file.read(_CHUNK).decode(errors="replace"), "")
        try:
            for line, column, element in elements(chunks, MOST_BYTES, _element):
                if not (_is_activity(element) or has_spans(element)):
                    raise _no_activity(path, line, column)
                yield f"{path}:{line}:{column}", element
                empty = False
        except ElementError as error:
            if not error.cut:
                raise _no_activity(path, error.line, error.column) from error
            if not empty:
                making.note(CUT, f"{path}:{error.line}:{error.column}")
    if empty:
        raise SpecError(f"{path}: not a trace file of Triton", _HINT)


def _no_activity(path: Path, line: int, column: int) -> SpecError:
    return SpecError(f"{path}:{line}:{column}: not an activity of Triton's trace", _HINT)


def _element(text: str, at: int) -> tuple[Any, int | None]:
    """The element that starts at a position, and its end; None as the end if text is missing."""
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError:
        following = _NEXT.search(text, at + 1)
        if following is None:
            return None, None
        return _unescaped(text[at : following.start()]), following.start()
    except (ValueError, RecursionError):  # a number of thousands of digits, or too deep nesting
        return None, at


def _unescaped(text: str) -> Any:
    """A tensor's activity without its data; None if it is not one."""
    match = _TENSOR.fullmatch(text)
    if match is None:
        return None
    number, activity, name, shape, dtype = match.groups()
    tensor = {"name": name, "data": "", "shape": shape, "dtype": dtype}
    return {"id": int(number), "activity": activity, "tensor": tensor}


def _is_activity(element: Any) -> bool:
    """Whether the element has everything that is read later, with the types that Triton writes."""
    if not isinstance(element, dict) or not _is_number(element.get("id")):
        return False
    moments, tensor = element.get("timestamps", []), element.get("tensor", {})
    return (
        isinstance(element.get("model_name", ""), str)
        and isinstance(moments, list)
        and all(isinstance(m, dict) and isinstance(m.get("name"), str) for m in moments)
        and all(_is_number(m.get("ns")) for m in moments)
        and isinstance(tensor, dict)
        and (_is_tensor(tensor) or (not tensor and element.get("activity") != _INPUT))
    )


def _is_tensor(tensor: Mapping[str, Any]) -> bool:
    texts = [tensor.get(key, "" if key == "data" else None) for key in _TENSOR_KEYS]
    return all(isinstance(text, str) for text in texts) and bool(_SHAPE.fullmatch(tensor["shape"]))


def _is_number(given: Any) -> bool:
    return type(given) is int and abs(given) < _LARGEST
