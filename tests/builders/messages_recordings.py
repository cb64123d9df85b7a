"""Recordings that are not read, and traces and logs that become none: what is said of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from builders.refusals import Case

from tuner.load.traffic.encoding import TensorShape
from tuner.load.traffic.recordings.access_log import LogColumns, requests_of_log
from tuner.load.traffic.recordings.contents import RecordedContents
from tuner.load.traffic.recordings.lines import RecordedStream, read_recording, streams_of
from tuner.load.traffic.recordings.making import LoggedRequest, Making, make_recording
from tuner.load.traffic.recordings.triton_trace import requests_of_trace
from tuner.spec.workload import RecordingInputs

STREAMS = {"online": "texts", "nightly": "texts", "pictures": "resnet"}
IDS = TensorShape("ids", "INT32", (-1,))
MASK = TensorShape("mask", "INT32", (2,), optional=True)
NO_TRACES = ("", "[]", "{", '{"data": []}', '[{"id": "1"}]', "time,length\n1,2")
TRACED = '[{"id":1,"model_name":"m"},\n {"id":1,"timestamps":[{"name":"REQUEST_START","ns":5}]}'
QUEUED = '{"id":1,"activity":"TENSOR_QUEUE_INPUT","tensor":%s}'
TENSOR = '{"name":"x","data":%s,"shape":"%s","dtype":"FP32"}'
ODD_ACTIVITIES = {
    "a shape of letters": QUEUED % (TENSOR % ('"1"', "a,b")),
    "a shape of 5,000 digits": QUEUED % (TENSOR % ('"1"', "1" * 5000)),
    "a list for data": QUEUED % (TENSOR % ("[1]", "1,1")),
    "an object for data": QUEUED % (TENSOR % ("{}", "1,1")),
    "nothing for data": QUEUED % (TENSOR % ("null", "1,1")),
    "no tensor": QUEUED % "{}",
    "a tensor that is none": QUEUED % "null",
    "a moment of 400 digits": f'{{"id":1,"timestamps":[{{"name":"A","ns":1{"0" * 400}}}]}}',
    "a moment of 5,000 digits": f'{{"id":1,"timestamps":[{{"name":"A","ns":1{"0" * 5000}}}]}}',
    "a moment whose name is a list": '{"id":1,"timestamps":[{"name":[],"ns":1}]}',
    "an id of 5,000 digits": f'{{"id":1{"0" * 5000}}}',
    "a model whose name is a list": '{"id":1,"model_name":[]}',
    "nesting": f'{{"id":1,"model_name":{"[" * 100_000}{"]" * 100_000}}}',
    "a request of too many inferences": QUEUED % (TENSOR % ('"1"', "3000000,3")),
}


def written(directory: Path, *lines: object, end: str = "\n") -> Path:
    path = directory / "requests.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + end)
    return path


def contents(
    directory: Path,
    *rows: dict[str, Any],
    tensors: tuple[TensorShape, ...] = (IDS, MASK),
    **spec: Any,
) -> RecordedContents:
    path = written(directory, *({"due_s": k, **row} for k, row in enumerate(rows)))
    recorded = RecordedStream(read_recording(path), np.arange(len(rows)))
    inputs = RecordingInputs.model_validate({"kind": "recording", **spec})
    return RecordedContents(inputs, recorded, tensors)


def not_read() -> dict[str, Case]:
    """By what is wrong with a file or its lines."""

    def lines(*lines: object, end: str = "\n") -> Case:
        def read(here: Path) -> None:
            read_recording(written(here, *lines, end=end))

        return read

    def second(line: object) -> Case:
        return lines({"due_s": 0.5}, line, {"due_s": 2})

    def streams(*rows: dict[str, str]) -> Case:
        def read(here: Path) -> None:
            file = written(here, *({"due_s": k, **row} for k, row in enumerate(rows)))
            streams_of(read_recording(file), STREAMS)

        return read

    def of_one(row: dict[str, str]) -> Case:
        return streams({"stream": "online"}, row)

    def bytes_of_no_text(here: Path) -> None:
        path = here / "bytes"
        path.write_bytes(b'{"due_s": 0}\n{"due_s": 1, "stream": "\xff"}\n')
        read_recording(path)

    def changed(here: Path) -> None:
        recording = read_recording(written(here, {"due_s": 0}, {"due_s": 1}))
        (here / "requests.jsonl").write_text("[]" * 20)
        list(recording.read([1]))

    return {
        "it is not there": lambda here: read_recording(here / "absent"),
        "it is a directory": read_recording,
        "it has times alone": lines(*(f"{n / 10}" for n in range(1234))),
        "it is no text": bytes_of_no_text,
        "it changed since it was read first": changed,
        "it was cut off": lines({"due_s": 0}, {"due_s": 1}, '{"due_s": 2, "inp', end=""),
        "it has no line": lines(end=""),
        "it has one line": lines({"due_s": 3.0}),
        "it is shorter than a second": lines({"due_s": 3.0}, {"due_s": 3.9}),
        "several bad lines": lines("{", {"due_s": 1}, "}", {"due_s": 0}),
        "a line is not JSON": second('{"due_s": 1, x}'),
        "a line is empty": second(""),
        "a line is no object": second("[1]"),
        "a mistyped key": second({"due_s": 1, "imputs": {}}),
        "no time": second({"entry": 1}),
        "a time in words": second({"entry": 1, "due_s": "1s"}),
        "a time without end": second('{"due_s": Infinity}'),
        "a truth as time": second({"due_s": True}),
        "a time of 400 digits": second('{"due_s": 1%s}' % ("0" * 400)),
        "a time of 5,000 digits": second('{"due_s": 1%s}' % ("0" * 5000)),
        "a day in milliseconds": lines({"due_s": 1}, {"due_s": 2}, {"due_s": 86_400_000}),
        "a day in microseconds": lines({"due_s": 1}, {"due_s": 2}, {"due_s": 86_400_000_000}),
        "times without end": lines({"due_s": -1e308}, {"due_s": 1e308}, {"due_s": 1e308}),
        "lines with long keys": lines(*({"x" * 100_000: k} for k in range(2))),
        "a time going back": second({"due_s": 0.2}),
        "inputs and an entry": second({"due_s": 1, "inputs": {}, "entry": 1}),
        "a stream of no name": second({"due_s": 1, "stream": 7}),
        "a line of no stream": of_one({}),
        "a line of a model with several streams": of_one({"model": "texts"}),
        "a line of a mistyped stream": of_one({"stream": "onlin"}),
        "a line of another stream's model": of_one({"stream": "online", "model": "resnet"}),
        "no line of a stream": of_one({"stream": "online"}),
    }


def not_fitting_lines() -> dict[str, Case]:
    """Of lines that a model cannot be asked with."""

    def second(row: dict[str, Any]) -> Case:
        fits = {"shapes": {"ids": [2]}}
        return lambda here: list(contents(here, fits, row, fits).checked())

    def entry(number: object) -> Case:
        def check(here: Path) -> None:
            file = here / "texts.json"
            rows = [{"ids": {"content": [1], "shape": [1]}}] * 4
            file.write_text(json.dumps({"data": rows}))
            list(contents(here, {"entry": 0}, {"entry": number}, file=str(file)).checked())

        return check

    none = {"shapes": {"ids": [0]}}
    both = {"shapes": {"ids": [2], "mask": [2]}}
    return {
        "nothing": second({}),
        "another input": second({"inputs": {"idz": [1]}}),
        "a text for an integer": second({"inputs": {"ids": {"content": ["a"], "shape": [1]}}}),
        "an open shape": second({"inputs": {"ids": [1]}}),
        "two dimensions for one": second({"shapes": {"ids": [2, 3]}}),
        "a dimension of nothing": second(none),
        "a shape of another input": second({"shapes": {"idz": [3]}}),
        "a list of shapes": second({"shapes": [3]}),
        "more than a request may carry": second({"shapes": {"ids": [300_000_000]}}),
        "a dimension of 300 digits": second({"shapes": {"ids": [10**300]}}),
        "an entry of no file": second({"entry": 1}),
        "an entry after the last": entry(4),
        "an entry before the first": entry(-1),
        "a truth as entry": entry(True),
        "a text as entry": entry("1"),
        "two wrong lines of three": lambda here: list(contents(here, none, both, none).checked()),
        "many wrong lines": lambda here: list(contents(here, *[none] * 102).checked()),
    }


def not_made() -> dict[str, Case]:
    """From traces and logs that hold no requests, or fewer than a recording needs."""

    def log(text: str) -> Case:
        def make(here: Path) -> None:
            (here / "access.log").write_text(text)
            logged = requests_of_log([here / "access.log"], LogColumns("at", {"x": ["n"]}))
            make_recording(logged, here / "made.jsonl", Making())

        return make

    def trace(text: str) -> Case:
        def make(here: Path) -> None:
            (here / "trace.json").write_text(text)
            list(requests_of_trace([here / "trace.json"], Making(), batched=True, named=False))

        return make

    def made(name: str) -> Case:
        def make(here: Path) -> None:
            (here / "old").touch()
            make_recording([LoggedRequest(1.0, {})], here / name, Making())

        return make

    return {
        "one request": made("made.jsonl"),
        "there is no such directory": made("old/made.jsonl"),
        "a log without the column": log("at,len\n1,2\n"),
        "a log with a text for a length": log("at,n\n1,2\n1,x\n"),
        "a log with a length of nothing": log("at,n\n1,0\n"),
        "a log with half a length": log('{"at": 1, "n": 1.5}\n'),
        "a log without a time": log("at,n\nnoon,2\n"),
        "a log that is cut off": log('{"at": 1, "n": 1}\n{"at"\n'),
        "a log with a list": log('{"at": 1, "n": 1}\n[1]\n'),
        "a log whose requests are years apart": log("at,n\n2026-01-01,1\n1996-01-01,2\n"),
        "a log from the year 1": log("at,n\n2026-01-01,1\n0001-01-01,2\n"),
        **{
            f"a trace with {what}": trace(f"{TRACED},\n{activity}]")
            for what, activity in ODD_ACTIVITIES.items()
        },
        **{
            f"no trace, but {text or 'nothing'}".replace("\n", " "): trace(text)
            for text in NO_TRACES
        },
    }
