"""Files of requests in perf_analyzer's JSON: a list of requests, or a list of sequences of them."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import SpecError
from tuner.load.traffic.arrivals import MOST_FILE_BYTES
from tuner.load.traffic.encoding import TensorShape, content_bytes, numpy_type
from tuner.load.traffic.source_files import read_source
from tuner.load.traffic.wire import Content
from tuner.plain import plain
from tuner.spec.mistakes import Finding, FindingsError, in_brackets, listed

_FORM = (
    'write {"data": [{"INPUT": [1, 2, 3]}, ...]}, and {"content": [1, 2, 3], "shape": [3]} for the '
    "values of an input with an open dimension; each entry is one inference, without the batch"
)
_MIXED = "requests and sequences (lists of requests) are mixed: write one kind or the other"
_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class RequestFile:
    """The content of a file of requests.

    Attributes:
        entries: Inputs of each request, without the batch; sequences follow one another.
        lengths: Number of requests in each sequence; empty for independent requests.
    """

    entries: tuple[dict[str, Content], ...]
    lengths: tuple[int, ...] = ()


def read_requests(
    path: Path, tensors: Sequence[TensorShape], *, all_known: bool = True
) -> RequestFile:
    """Reads the requests in a file of perf_analyzer's format.

    Values may be as in JSON, such as 1 for a float, which perf_analyzer refuses.

    Args:
        tensors: The model's inputs.
        all_known: False before a server was asked, which may add inputs to the config.

    Raises:
        SpecError: The file cannot be read, or entries do not fit; with the place of each.
    """
    data = data_of(path, _FORM)
    if not isinstance(data, list) or not data:
        raise SpecError(f"{path}: data is not a list of requests", _FORM)
    nested = isinstance(data[0], list)
    entries, wrong = list[dict[str, Content]](), list[tuple[tuple[int, ...], str]]()
    for k, entry in enumerate(data):
        if isinstance(entry, list) is not nested:
            wrong.append(((k,), _MIXED))
        elif nested and not entry:
            wrong.append(((k,), "a sequence without requests"))
        else:
            for place, request in _requests_of(k, entry):
                contents, mistakes = read_entry(request, tensors, all_known=all_known)
                entries.append(contents)
                wrong += [(place, listed(mistakes, "; "))] if mistakes else []
    if wrong:
        at = _Places(path)
        raise FindingsError([_mistake(at, place, text, nested=nested) for place, text in wrong])
    return RequestFile(tuple(entries), tuple(map(len, data)) if nested else ())


def _requests_of(k: int, entry: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The requests in an entry of the file, each with its place in the data."""
    if isinstance(entry, list):
        yield from (((k, step), request) for step, request in enumerate(entry))
    else:
        yield (k,), entry


def _mistake(at: _Places, place: tuple[int, ...], text: str, *, nested: bool) -> Finding:
    words = ("sequence", "request") if nested else ("entry",)
    named = ", ".join(f"{word} {k + 1}" for word, k in zip(words, place, strict=False))
    return Finding((), plain(f"{named}: {text}"), hint=_FORM, at=plain(at.of(place)))


def place_in_data(path: Path, place: tuple[int, ...]) -> str:
    """``file:line:column`` of ``data[k]``, or of ``data[k][step]``."""
    return _Places(path).of(place)


class _Places:
    """Positions of values in the data of a JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        raw = read_source(path, MOST_FILE_BYTES)
        self._text = raw.decode(json.detect_encoding(raw))
        self._offsets: dict[tuple[int, ...], list[int]] = {}

    def of(self, place: tuple[int, ...]) -> str:
        """``file:line:column`` of ``data[k]``, or of ``data[k][step]``."""
        at = self._offset(place)
        line = self._text.count("\n", 0, at) + 1
        return f"{self._path}:{line}:{at - self._text.rfind(chr(10), 0, at)}"

    def _offset(self, place: tuple[int, ...]) -> int:
        if not place:
            top = self._members(_after_space(self._text, 0))
            return [offset for name, offset in top if name == "data"][-1]
        *outer, last = place
        if (key := tuple(outer)) not in self._offsets:
            items = self._members(self._offset(key))
            self._offsets[key] = [offset for _, offset in items]
        return self._offsets[key][last]

    def _members(self, at: int) -> Iterator[tuple[Any, int]]:
        """Names (None in a list) and positions of the values in an object or list at an offset."""
        text, decode = self._text, json.JSONDecoder().raw_decode
        named, at = text[at] == "{", _after_space(text, at + 1)
        while text[at] not in "]}":
            name = None
            if named:
                name, at = decode(text, at)
                at = _after_space(text, _after_space(text, at) + 1)
            yield name, at
            at = _after_space(text, decode(text, at)[1])
            at = _after_space(text, at + 1) if text[at] == "," else at


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def data_of(path: Path, hint: str = "") -> Any:
    """The ``data`` in a file of perf_analyzer's format, unchecked.

    Raises:
        SpecError: The file cannot be read, or has no ``data``.
    """
    wrong = f"{path}: not in perf_analyzer's input format"
    try:
        document = json.loads(read_source(path, MOST_FILE_BYTES))
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        text = str(error)
        if isinstance(error, UnicodeDecodeError):
            text = "it is no text in UTF-8"
        elif isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            text = f"another value begins on line {error.lineno}: put all requests into one list"
            text += _of_body(json.JSONDecoder().raw_decode(error.doc)[0])
        elif isinstance(error, json.JSONDecodeError):
            text = f"no JSON at line {error.lineno}, column {error.colno} ({error.msg.lower()})"
        raise SpecError(f"{wrong}: {text}", hint) from error
    if not isinstance(document, dict) or "data" not in document:
        raise SpecError(f"{wrong}: not an object with data{_of_body(document)}", hint)
    return document["data"]


def _of_body(document: Any) -> str:
    """What else is wrong with the body of a request; empty if it is none."""
    keys = document.keys() if isinstance(document, dict) else ()
    if "instances" in keys:
        return "; instances make it a request of TensorFlow Serving or KServe: call them data"
    if "inputs" in keys:
        return "; inputs make it the body of an HTTP request: write each by its name"
    return ""


def not_inputs(entry: Mapping[str, Any]) -> list[str]:
    """What in an entry has no form of an input's values, whatever the model is."""
    return [name for name, given in entry.items() if name != "model" and not _is_content(given)]


def _is_content(given: Any) -> bool:
    form = given.get("content", given) if isinstance(given, dict) else given
    if isinstance(form, dict):
        return isinstance(form.get("b64"), str)
    return isinstance(form, list) and not any(isinstance(value, dict) for value in form)


def read_entry(
    entry: Any, tensors: Sequence[TensorShape], *, all_known: bool
) -> tuple[dict[str, Content], list[str]]:
    """The contents of an entry, and its mistakes."""
    if not isinstance(entry, dict):
        return {}, ["not one request, with its inputs by name"]
    contents, names = dict[str, Content](), [tensor.name for tensor in tensors]
    wrong = [
        f"{name} is not an input of the model{in_brackets(name, names)}"
        for name in entry
        if all_known and name not in (*names, "model")  # perf_analyzer lets an entry name it
    ]
    for tensor in tensors:
        try:
            if tensor.name in entry:
                contents[tensor.name] = _content(entry[tensor.name], tensor)
            elif not tensor.optional:
                wrong.append(f"it has no {tensor.name}")
        except struct.error:
            wrong.append(f"{tensor.name}: b64 must be texts, each after its length in four bytes")
        except (ValueError, TypeError, OverflowError) as error:
            wrong.append(f"{tensor.name}: {error}")
    return contents, wrong


def _content(given: Any, tensor: TensorShape) -> Content:
    """Reads a form of perf_analyzer's: ``{b64, shape}``, ``{content, shape}``, or values alone."""
    from tritonclient.utils import deserialize_bytes_tensor

    form = given if isinstance(given, dict) else {"content": given}
    shape, content = form.get("shape", tensor.shape), form.get("content", form)
    if isinstance(content, str):
        listed_as = '["..."]' if tensor.datatype == "BYTES" else '{"b64": "...", "shape": [...]}'
        text = f"a text is not a list of {tensor.datatype}: write {listed_as}"
        raise ValueError(text)  # noqa: TRY004
    fits = isinstance(shape, (list, tuple)) and len(shape) == len(tensor.shape)
    sizes = zip(shape, tensor.shape, strict=True) if fits else ()
    if not fits or not all(type(size) is int and dim in (-1, size) for size, dim in sizes):
        raise ValueError(f"shape {shape}, where {[*tensor.shape]} is expected, without the batch")
    if any(size < 0 for size in shape):
        raise ValueError(f"it has no shape, but {[*shape]} has a variable dimension")
    if isinstance(content, dict) and "b64" not in content:
        raise ValueError("neither content nor b64")
    values = not isinstance(content, dict)
    raw = _raw(content, tensor.datatype) if values else base64.b64decode(content["b64"])
    one_bytes = content_bytes(TensorShape("", tensor.datatype, ()), 0)
    strings = tensor.datatype == "BYTES"
    count = len(deserialize_bytes_tensor(raw)) if strings else len(raw) / one_bytes
    if count != math.prod(shape):
        raise ValueError(f"{count:.15g} values, but {[*shape]} is expected")
    return Content(tuple(shape), raw)


#: JSON types of values by kind of NumPy type; V is bfloat16's, if ml_dtypes provides it.
_TYPES = dict[str, set[type]](b={bool}, i={int}, u={int}, f={int, float}, V={int, float}, O={str})


def _raw(values: Any, datatype: str) -> bytes:
    dtype = numpy_type(datatype)
    if dtype is None or not isinstance(values, list):
        raise ValueError(f"it is not a list of {datatype}")
    flat = np.array(values, dtype=object).ravel().tolist()
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    for value in flat:
        fits = type(value) in _TYPES[dtype.kind]
        if not fits or (limits is not None and not limits.min <= value <= limits.max):
            raise ValueError(f"{json.dumps(value)[:60]} is not {datatype}")
    if datatype == "BYTES":
        texts = [text.encode() for text in flat]
        return b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    if datatype == "BF16":  # the upper half of a float; tritonclient 2.73 has no function for it
        return np.array(flat, dtype="<f4").view("<u2")[1::2].tobytes()
    return np.array(flat, dtype=dtype).tobytes()
