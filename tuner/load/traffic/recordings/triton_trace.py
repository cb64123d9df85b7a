"""Requests in Triton's own trace files, as ``--trace-config triton,file=FILE`` writes them.

Each is an array of activities with the id of a request (docs/user_guide/trace.md of
triton-inference-server/server). Values of tensors are there at level TENSORS only, and then not of
every type as they were: floats with six digits, texts and bytes not told apart from what is
between them, halves not at all (TraceTensorActivity in its src/tracer.cc).
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
from tuner.load.traffic.recordings.lines import MOST_BYTES, opened
from tuner.load.traffic.recordings.making import LoggedRequest, Making

#: Moments at which a request may have come, the truest first. The wait of gRPC begins before it.
_CAME = ("HTTP_RECV_START", "GRPC_WAITREAD_END", "REQUEST_START")
_INPUT = "TENSOR_QUEUE_INPUT"
#: Types whose values can be read back.
_READ: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("INT16", "INT32", "INT64", "UINT16", "UINT32", "UINT64"), int),
    **dict.fromkeys(("FP32", "FP64"), float),
    "BOOL": lambda text: bool(int(text)),
}
#: Activities of so many requests may be mixed; then the oldest is taken to be complete.
_MOST_OPEN = 10_000
#: A request of more inferences than this has a first dimension that is no batch.
_MOST_INFERENCES = 10_000
_NEXT = re.compile(r',\s*(?={"id":)')
#: A tensor whose data is no JSON: Triton writes texts as they are.
_TENSOR = re.compile(
    r'{"id":(\d{1,18}),"activity":"(\w+)","tensor":{"name":"([^"]*)","data":.*'
    r'"shape":"([\d,]*)","dtype":"(\w+)"}}',
    re.DOTALL,
)
_DECODER = json.JSONDecoder(strict=False)
_BEFORE, _BETWEEN = re.compile(r"[\[ \t\r\n]*"), re.compile(r"[, \t\r\n]*")
_TENSOR_KEYS = ("name", "shape", "dtype", "data")
_SHAPE = re.compile(r"(?:\d{1,9}(?:,\d{1,9})*)?")
#: Ids and moments have 64 bits.
_LARGEST = 1 << 63
_CHUNK = 1 << 20
_HINT = "give the files of --trace-config triton,file=FILE, with rate=1 and level=TIMESTAMPS"

NO_VALUES = "shapes and no values: their tensors are of a type that a trace does not keep"
NO_TENSORS = "times only: trace with level=TENSORS as well, or say in the spec what they carry"
NO_TIME = "no time, left out: trace with level=TIMESTAMPS"
SPLIT = "several inferences, of which each is a request of the recording at the same moment"
ROUNDED = "floats with the six digits that a trace has"
CUT = "the last one cut off in the file, left out"


@dataclass
class _Traced:
    """What is known of one request.

    Attributes:
        place: Of its first activity.
        inputs: Tensors by name; of two with the same name the last.
    """

    place: str
    model: str = ""
    child: bool = False
    moments_ns: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, dict[str, str]] = field(default_factory=dict)


def requests_of_trace(
    paths: Sequence[Path], making: Making, *, batched: bool, named: bool
) -> Iterator[LoggedRequest]:
    """The requests of trace files, without those that models and ensembles sent themselves.

    Args:
        batched: The first dimension of tensors is the batch.
        named: Each line says its model.

    Raises:
        SpecError: A file is no trace.
    """
    for path in paths:
        under_way: dict[int, _Traced] = {}
        for place, activity in _activities(path, making):
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
        making.note(NO_TIME)
        return
    row: dict[str, Any] = {"model": traced.model} if named else {}
    rows = _rows(traced, making, batched)
    if len(rows) > 1:
        making.note(SPLIT)
    for content in rows:
        yield LoggedRequest(at_ns / 1e9, {**row, **content}, traced.place)


def _rows(traced: _Traced, making: Making, batched: bool) -> list[dict[str, Any]]:
    """What each inference of a request carries, with its values or else with its shapes."""
    inputs = [*traced.inputs.values()]
    shapes = {t["name"]: [int(d) for d in t["shape"].split(",") if d] for t in inputs}
    if not inputs or not all(shapes.values()):
        making.note(NO_TENSORS)
        return [{}]
    count = next(iter(shapes.values()))[0] if batched else 1
    if count > _MOST_INFERENCES:
        raise SpecError(
            f"{traced.place}: a request of {count:,} inferences, by the first dimension of its "
            f"tensors; at most {_MOST_INFERENCES:,} are recorded",
            "--no-batch: the first dimension is no batch (max_batch_size: 0)",
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
    """The values of each of so many inferences; None where they cannot be read."""
    try:
        read = [_READ[tensor["dtype"]](text) for text in tensor.get("data", "").split(",")]
    except ValueError:
        return None
    each = len(read) // max(count, 1)
    if len(read) != math.prod(shape) or each * count != len(read):
        return None
    return [read[k * each : (k + 1) * each] for k in range(count)]


def _activities(path: Path, making: Making) -> Iterator[tuple[str, dict[str, Any]]]:
    """The array's elements one by one, each with its place, also where its server was killed."""
    text, at, first = "", 0, True
    line, line_start = 1, 0  # of the place in `text` that is read next
    with opened(path) as file:
        while True:
            chunk = file.read(_CHUNK).decode(errors="replace")
            text += chunk
            while True:
                before, between = at, (_BEFORE if first else _BETWEEN).match(text, at)
                at = between.end() if between else at
                if breaks := text.count("\n", before, at):
                    line, line_start = line + breaks, text.rindex("\n", before, at) + 1
                place = f"{path}:{line}:{at - line_start + 1}"
                element, end = _element(text, at)
                if end is None:
                    break
                if not _is_activity(element):
                    raise SpecError(f"{place}: not an activity of Triton's trace", _HINT)
                yield place, element
                at, first = end, False
            text, at, line_start = text[at:], 0, line_start - at
            if len(text) > MOST_BYTES:
                raise SpecError(f"{place}: not an activity of Triton's trace", _HINT)
            if not chunk:
                break
    if first:
        raise SpecError(f"{path}: not a trace file of Triton", _HINT)
    if text.strip("] \t\r\n"):
        making.note(CUT)


def _element(text: str, at: int) -> tuple[Any, int | None]:
    """The element that begins at a place, and its end; None as end where more is to be read."""
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError:
        following = _NEXT.search(text, at + 1)
        if following is None:
            return None, None
        return _unescaped(text[at : following.start()]), following.start()
    except (ValueError, RecursionError):  # a number of thousands of digits, or nested too deep
        return None, at


def _unescaped(text: str) -> Any:
    """A tensor's activity without its data; None where it is none."""
    match = _TENSOR.fullmatch(text)
    if match is None:
        return None
    number, activity, name, shape, dtype = match.groups()
    tensor = {"name": name, "data": "", "shape": shape, "dtype": dtype}
    return {"id": int(number), "activity": activity, "tensor": tensor}


def _is_activity(element: Any) -> bool:
    """Whether all that is read of it is there, and of the types that Triton writes."""
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
