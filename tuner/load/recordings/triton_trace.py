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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.errors import SpecError
from tuner.load.recordings.lines import opened
from tuner.load.recordings.making import FoundRequest, Making

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
_NEXT = ',{"id":'
#: A tensor whose data is no JSON: Triton writes texts as they are.
_TENSOR = re.compile(
    r'{"id":(\d+),"activity":"(\w+)","tensor":{"name":"([^"]*)","data":.*'
    r'"shape":"([\d,]*)","dtype":"(\w+)"}}',
    re.DOTALL,
)
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
    """What is known of one request."""

    model: str = ""
    child: bool = False
    moments_ns: dict[str, int] = field(default_factory=dict)
    inputs: list[dict[str, str]] = field(default_factory=list)


def requests_of_trace(
    paths: Sequence[Path], making: Making, *, batched: bool, named: bool
) -> Iterator[FoundRequest]:
    """The requests of trace files, without those that models and ensembles sent themselves.

    Args:
        batched: The first dimension of tensors is the batch.
        named: Each line says its model.

    Raises:
        SpecError: A file is no trace.
    """
    for path in paths:
        opened: dict[int, _Traced] = {}
        for activity in _activities(path, making):
            _add(opened.setdefault(activity["id"], _Traced()), activity)
            if len(opened) > _MOST_OPEN:
                yield from _found(opened.pop(next(iter(opened))), making, batched, named)
        for traced in opened.values():
            yield from _found(traced, making, batched, named)


def _add(traced: _Traced, activity: dict[str, Any]) -> None:
    if "model_name" in activity:
        traced.model = str(activity["model_name"])
        traced.child = "parent_id" in activity
    for moment in activity.get("timestamps", ()):
        traced.moments_ns[moment["name"]] = int(moment["ns"])
    if activity.get("activity") == _INPUT:
        traced.inputs.append(activity["tensor"])


def _found(traced: _Traced, making: Making, batched: bool, named: bool) -> Iterator[FoundRequest]:
    if traced.child:
        return
    at_ns = next((traced.moments_ns[name] for name in _CAME if name in traced.moments_ns), None)
    if at_ns is None:
        making.note(NO_TIME)
        return
    row: dict[str, Any] = {"model": traced.model} if named else {}
    rows = _rows(traced.inputs, making, batched)
    if len(rows) > 1:
        making.note(SPLIT)
    for own in rows:
        yield FoundRequest(at_ns / 1e9, {**row, **own})


def _rows(inputs: Sequence[dict[str, str]], making: Making, batched: bool) -> list[dict[str, Any]]:
    """What each inference of a request carries, with its values or else with its shapes."""
    shapes = {t["name"]: [int(d) for d in t["shape"].split(",") if d] for t in inputs}
    if not inputs or not all(shapes.values()):
        making.note(NO_TENSORS)
        return [{}]
    count = next(iter(shapes.values()))[0] if batched else 1
    own = {name: shape[1:] if batched else shape for name, shape in shapes.items()}
    kept = all(tensor["dtype"] in _READ for tensor in inputs)
    values = [_values(tensor, shapes[tensor["name"]], count) for tensor in inputs] if kept else []
    parts = [value for value in values if value is not None]
    if len(parts) < len(inputs):
        making.note(NO_VALUES)
        return [{"shapes": own}] * count
    if any(tensor["dtype"] in ("FP32", "FP64") for tensor in inputs):
        making.note(ROUNDED)
    return [
        {
            "inputs": {
                name: {"content": part[k], "shape": own[name]}
                for name, part in zip(own, parts, strict=True)
            }
        }
        for k in range(count)
    ]


def _values(tensor: dict[str, str], shape: Sequence[int], count: int) -> list[list[Any]] | None:
    """The values of each of so many inferences; None where they cannot be read."""
    try:
        read = [_READ[tensor["dtype"]](text) for text in tensor["data"].split(",")]
    except ValueError:
        return None
    each = len(read) // max(count, 1)
    if len(read) != math.prod(shape) or each * count != len(read):
        return None
    return [read[k * each : (k + 1) * each] for k in range(count)]


def _activities(path: Path, making: Making) -> Iterator[dict[str, Any]]:
    """The array's elements one by one, also of a file that its server did not finish."""
    decoder, text, first = json.JSONDecoder(strict=False), "", True
    with opened(path) as file:
        while True:
            chunk = file.read(_CHUNK).decode(errors="replace")
            text += chunk
            while True:
                text = text.lstrip("[ \t\r\n" if first else ", \t\r\n")
                try:
                    element, end = decoder.raw_decode(text)
                except json.JSONDecodeError:
                    end = text.find(_NEXT, 1)
                    if end < 0:
                        break
                    element = _unescaped(text[:end])
                if not _is_activity(element):
                    raise SpecError(f"{path}: not a trace file of Triton", _HINT)
                yield element
                text, first = text[end:], False
            if not chunk:
                break
    if first:
        raise SpecError(f"{path}: not a trace file of Triton", _HINT)
    if text.strip("] \t\r\n"):
        making.note(CUT)


def _unescaped(text: str) -> Any:
    """A tensor's activity without its data; None where it is none."""
    found = _TENSOR.fullmatch(text)
    if found is None:
        return None
    number, activity, name, shape, dtype = found.groups()
    tensor = {"name": name, "data": "", "shape": shape, "dtype": dtype}
    return {"id": int(number), "activity": activity, "tensor": tensor}


def _is_activity(element: Any) -> bool:
    if not isinstance(element, dict) or type(element.get("id")) is not int:
        return False
    moments, tensor = element.get("timestamps", []), element.get("tensor", {})
    return (
        isinstance(moments, list)
        and all(isinstance(m, dict) and type(m.get("ns")) is int and "name" in m for m in moments)
        and isinstance(tensor, dict)
        and (not tensor or all(isinstance(tensor.get(k), str) for k in ("name", "shape", "dtype")))
    )
