"""Traces, logs and input files become recordings; the traces here are real ones of Triton 2.51."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.load.traffic.recordings.access_log import LogColumns, requests_of_log
from tuner.load.traffic.recordings.lines import read_recording
from tuner.load.traffic.recordings.making import LoggedRequest, Making, make_recording
from tuner.load.traffic.recordings.triton_trace import (
    CUT,
    NO_TENSORS,
    NO_TIME,
    NO_VALUES,
    ROUNDED,
    SPLIT,
    TIMES_ONLY,
    requests_of_trace,
)


def made(requests: Any, directory: Path, making: Making | None = None) -> list[dict[str, Any]]:
    path = directory / "made.jsonl"
    make_recording(requests, path, making or Making())
    return [json.loads(line) for line in path.read_text().splitlines()]


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=50))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_requests_come_in_the_order_of_their_times_to_a_microsecond(
    tmp_path: Path, times: list[float]
) -> None:
    making = Making()
    logged = [LoggedRequest(t, {"entry": k}) for k, t in enumerate(times)]
    rows = made(logged, tmp_path, making)
    assert [row["due_s"] for row in rows] == [round(t - min(times), 6) for t in sorted(times)]
    assert sorted(row["entry"] for row in rows) == list(range(len(times)))
    assert all(
        times[row["entry"]] - min(times) == pytest.approx(row["due_s"], abs=1e-6) for row in rows
    )
    assert making.requests == len(times)
    assert [path.name for path in tmp_path.iterdir()] == ["made.jsonl"]


def test_recording_that_tune_makes_is_read(tmp_path: Path) -> None:
    logged = [LoggedRequest(5.0, {}), LoggedRequest(3.5, {"shapes": {"x": [2]}, "stream": "é"})]
    assert made(logged, tmp_path)[0] == {"due_s": 0.0, "shapes": {"x": [2]}, "stream": "é"}
    assert read_recording(tmp_path / "made.jsonl").due_s.tolist() == [0.0, 1.5]


def test_half_a_surrogate_pair_of_a_log_is_kept_as_json_has_it(tmp_path: Path) -> None:
    logged = [LoggedRequest(float(k), {"stream": '\ud800"é'}) for k in range(2)]
    assert [row["stream"] for row in made(logged, tmp_path)] == ['\ud800"é'] * 2


def test_a_recording_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "made.jsonl"
    path.write_text("old")
    with pytest.raises(SpecError, match="one request"):
        made([LoggedRequest(1.0, {})], tmp_path)
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]
    with pytest.raises(EnvironmentNotReadyError, match="cannot write"):
        made([], path / "below")


FP32 = '"tensor":{"name":"x","data":"%s","shape":"%s","dtype":"FP32"}'


def activities(number: int, at_ns: int, *more: str, model: str = "plain", parent: int = 0) -> str:
    """As Triton writes them for a request over gRPC."""
    child = f',"parent_id":{parent}' if parent else ""
    parts = [
        f'{{"id":{number},"model_name":"{model}","model_version":1{child}}}',
        f'{{"id":{number},"timestamps":[{{"name":"REQUEST_START","ns":{at_ns + 72448}}}]}}',
        *(f'{{"id":{number},{text}}}' for text in more),
        f'{{"id":{number},"timestamps":[{{"name":"GRPC_WAITREAD_START","ns":{at_ns - 10**9}}}]}}',
        f'{{"id":{number},"timestamps":[{{"name":"GRPC_WAITREAD_END","ns":{at_ns}}}]}}',
    ]
    return ",".join(parts)


def queued(data: str, shape: str, dtype: str = "FP32", name: str = "x") -> str:
    tensor = f'{{"name":"{name}","data":"{data}","shape":"{shape}","dtype":"{dtype}"}}'
    return f'"activity":"TENSOR_QUEUE_INPUT","tensor":{tensor}'


def of_trace(
    directory: Path, *texts: str, batched: bool = True, named: bool = False
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    paths = []
    for number, text in enumerate(texts):
        paths.append(directory / f"trace.json.{number}")
        paths[-1].write_text(text)
    making = Making()
    logged = requests_of_trace(paths, making, batched=batched, named=named)
    return made(logged, directory, making), making.notes


def test_a_trace_gives_times_and_inputs_of_requests_from_several_files(tmp_path: Path) -> None:
    later = activities(2, 17237660558308, queued("2,0.5", "1,2"))
    first = activities(1, 17237112563681, queued("1,0", "1,2"))
    rows, notes = of_trace(tmp_path, f"[{later}]", f"[{first}]", named=True)
    inputs = [{"x": {"content": content, "shape": [2]}} for content in ([1.0, 0.0], [2.0, 0.5])]
    assert rows == [
        {"due_s": 0.0, "model": "plain", "inputs": inputs[0]},
        {"due_s": 0.547995, "model": "plain", "inputs": inputs[1]},
    ]
    assert notes == {ROUNDED: 2}


def test_a_request_over_http_came_when_its_first_byte_did(tmp_path: Path) -> None:
    text = '{"id":3,"timestamps":[{"name":"HTTP_RECV_START","ns":17237801404502}]},'
    text += '{"id":3,"timestamps":[{"name":"REQUEST_START","ns":17237801518441}]}'
    rows, notes = of_trace(tmp_path, f"[{activities(1, 17237801000000)},{text}]")
    assert [row["due_s"] for row in rows] == [0.0, 0.000405]
    assert notes == {NO_TENSORS: 2}


def test_requests_of_models_and_ensembles_to_others_are_not_the_users(tmp_path: Path) -> None:
    parts = [
        activities(1, 10**9),
        activities(2, 2 * 10**9, model="step", parent=1),
        activities(3, 3 * 10**9),
    ]
    rows, _ = of_trace(tmp_path, f"[{','.join(parts)}]")
    assert [row["due_s"] for row in rows] == [0.0, 2.0]


def test_each_inference_of_a_request_is_one_of_the_recording(tmp_path: Path) -> None:
    two = activities(1, 10**9, queued("1,2,3,4", "2,2", "INT32"))
    rows, notes = of_trace(
        tmp_path, f"[{two},{activities(2, 3 * 10**9, queued('5,6', '1,2', 'INT32'))}]"
    )
    assert [(row["due_s"], row["inputs"]["x"]["content"]) for row in rows] == [
        (0.0, [1, 2]),
        (0.0, [3, 4]),
        (2.0, [5, 6]),
    ]
    assert notes == {SPLIT: 1}
    rows, _ = of_trace(
        tmp_path, f"[{two},{activities(2, 10**9, queued('5', '1', 'INT32'))}]", batched=False
    )
    assert rows[0]["inputs"] == {"x": {"content": [1, 2, 3, 4], "shape": [2, 2]}}


@pytest.mark.parametrize("data", ['\\"a\\",\\"b\\"', 'a "text" with, commas and "id":', ""])
@pytest.mark.parametrize("dtype", ["BYTES", "FP16"])
def test_values_that_a_trace_does_not_keep_become_shapes(
    tmp_path: Path, data: str, dtype: str
) -> None:
    texts = activities(1, 10**9, queued(data, "1,2", dtype), queued("1", "1,1", "INT32", "mask"))
    rows, notes = of_trace(tmp_path, f"[{texts},{activities(2, 2 * 10**9, queued('3', '1,1'))}]")
    assert rows[0]["shapes"] == {"x": [2], "mask": [1]}
    assert notes[NO_VALUES] == 1


def test_the_last_of_two_inputs_with_one_name_counts(tmp_path: Path) -> None:
    twice = activities(1, 10**9, queued("1,2", "1,2"), queued("3,4", "1,2"))
    rows, _ = of_trace(tmp_path, f"[{twice},{activities(2, 2 * 10**9, queued('5', '1,1'))}]")
    assert [row["inputs"]["x"]["content"] for row in rows] == [[3.0, 4.0], [5.0]]


def test_a_trace_whose_server_was_killed_gives_what_it_has(tmp_path: Path) -> None:
    complete = [activities(k, k * 10**9) for k in (1, 2)]
    rows, notes = of_trace(tmp_path, f'[{",".join(complete)},{{"id":3,"timest')
    assert len(rows) == 2
    assert notes[CUT] == 1
    untimed = '{"id":9,"model_name":"plain","model_version":1}'
    rows, notes = of_trace(tmp_path, f"[{','.join([*complete, untimed])}")
    assert len(rows) == 2
    assert notes[NO_TIME] == 1


def span(model: str, at_ns: int, parent: int) -> dict[str, Any]:
    facts = [
        {"key": "triton.model_name", "value": {"stringValue": model}},
        {"key": "triton.trace_parent_id", "value": {"intValue": str(parent)}},
    ]
    return {"name": model, "startTimeUnixNano": str(at_ns), "attributes": facts}


def test_spans_of_opentelemetry_give_times_and_models_of_requests(tmp_path: Path) -> None:
    """A collector's file has an object a line; what ensembles and models send has a parent."""
    first = 1_732_795_201_100_000_000
    root = {"name": "InferRequest", "startTimeUnixNano": str(first - 1), "events": []}
    sent = [span("nlp", first, 0), root, span("bert", first + 10**6, 1)]
    later = [span("bert", first + 25 * 10**7, 0)]
    texts = [json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": s}]}]}) for s in (later, sent)]
    rows, notes = of_trace(tmp_path, "\n".join(texts) + "\n", named=True)
    assert rows == [{"due_s": 0.0, "model": "nlp"}, {"due_s": 0.25, "model": "bert"}]
    assert notes == {TIMES_ONLY: 2}
    tags = {"triton.model_name": "bert", "triton.trace_parent_id": 0}
    spans = [
        {"startTime": at_us, "tags": [{"key": k, "value": v} for k, v in tags.items()]}
        for at_us in (5_000_000, 5_250_000)
    ]
    jaeger = {"data": [{"spans": [{"startTime": 0, "tags": []}, *spans]}]}
    rows, notes = of_trace(tmp_path, json.dumps(jaeger), named=True)
    assert rows == [{"due_s": at_s, "model": "bert"} for at_s in (0.0, 0.25)]
    with pytest.raises(SpecError, match=r"trace\.json\.0:1:1: not OpenTelemetry's spans"):
        of_trace(tmp_path, '{"resourceSpans": [{"scopeSpans": [{}]}]}')


FIRST_NS = 1_732_795_201_100_000_000
SPANS = [span("bert", FIRST_NS, 0), span("x", FIRST_NS, 1), span("bert", FIRST_NS + 10**9, 0)]


@pytest.mark.parametrize(
    "document",
    [
        {"batches": [{"scopeSpans": [{"spans": SPANS}]}]},
        {"batches": [{"instrumentationLibrarySpans": [{"spans": SPANS}]}]},
        {"trace": {"resourceSpans": [{"scopeSpans": [{"spans": SPANS}]}]}},
        [
            {
                "traceId": "5b8e",
                "timestamp": FIRST_NS // 1000 + 10**6 * k,
                "tags": {"triton.model_name": "bert", "triton.trace_parent_id": parent},
            }
            for k, parent in ((0, "0"), (0, "1"), (1, "0"))
        ],
    ],
)
def test_spans_are_read_as_tempo_and_zipkin_give_them(document: Any, tmp_path: Path) -> None:
    rows, _ = of_trace(tmp_path, json.dumps(document, indent=1), named=True)
    assert rows == [{"due_s": at_s, "model": "bert"} for at_s in (0.0, 1.0)]


def test_elements_of_a_trace_can_be_on_separate_lines(tmp_path: Path) -> None:
    """As a program that joins files writes them; a text with a quote is no JSON."""
    quoted = activities(2, 2 * 10**9, queued('"x"', "1,1", "BYTES"))
    text = ",\n".join([activities(1, 10**9), quoted, activities(3, 4 * 10**9)])
    rows, notes = of_trace(tmp_path, f"[\n{text}\n]")
    assert [row["due_s"] for row in rows] == [0.0, 1.0, 3.0]
    assert CUT not in notes


@pytest.mark.parametrize("first", ["\ufeff", ""])
def test_a_byte_order_mark_is_no_part_of_a_log(tmp_path: Path, first: str) -> None:
    assert of_log(tmp_path, f"{first}at\n1\n2.5\n", LogColumns("at")) == [
        {"due_s": 0.0},
        {"due_s": 1.5},
    ]


def of_log(directory: Path, text: str, columns: LogColumns) -> list[dict[str, Any]]:
    path = directory / "access.log"
    path.write_text(text)
    return made(requests_of_log([path], columns), directory)


def test_a_table_gives_times_shapes_and_streams(tmp_path: Path) -> None:
    columns = LogColumns("at", {"ids": ["n"], "picture": ["3", "h"]}, stream="who", model="m")
    text = "at, n, h, who, m\n12.5,7,224,a,x\n11.25,9,32,b,y\n"
    expected = [
        {"due_s": 0.0, "stream": "b", "model": "y", "shapes": {"ids": [9], "picture": [3, 32]}},
        {"due_s": 1.25, "stream": "a", "model": "x", "shapes": {"ids": [7], "picture": [3, 224]}},
    ]
    assert of_log(tmp_path, text, columns) == expected
    rows = [
        {"at": 12.5, "n": 7, "h": "224", "who": "a", "m": "x"},
        {"at": 11.25, "n": 9.0, "h": 32, "who": "b", "m": "y"},
    ]
    assert of_log(tmp_path, "\n".join(map(json.dumps, rows)), columns) == expected


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        (("1000", "2500"), "ms"),
        (("1e9", "2.5e9"), "ns"),
        (("2026-01-01T00:00:01Z", "2026-01-01T01:00:02.500+01:00"), "s"),
        (("2026-01-01 00:00:01.000", "2026-01-01 00:00:02.500"), "s"),
    ],
)
def test_times_are_numbers_or_dates(tmp_path: Path, times: tuple[str, str], unit: str) -> None:
    text = "at\n" + "\n".join(times)
    rows = of_log(tmp_path, text, LogColumns("at", time_unit=unit))
    assert rows == [{"due_s": 0.0}, {"due_s": 1.5}]


def read_as_recording(path: Path) -> None:
    read_recording(path)


def read_as_trace(path: Path) -> None:
    list(requests_of_trace([path], Making(), batched=True, named=True))


def read_as_log(path: Path) -> None:
    list(requests_of_log([path], LogColumns("due_s", {"x": ["due_s"]})))


PIECES = [
    *(b'{"due_s": 0.5}\n', b'{"due_s": 2, "shapes": {"x": [2]}}\n', b'{"id":1,"timestamps":['),
    *(b'{"name":"REQUEST_START","ns":7}', b"]},", b"[", b"]", b"due_s\n", b"1\n", b'"', b"\xff"),
    activities(1, 5, queued("1,2", "1,2")).encode(),
    *(b"\x00", b",", b"NaN", b"1e999", b'{"id":1,"tensor":{"name":"x","shape":",","dtype":"B"}}'),
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join) | st.binary(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@pytest.mark.parametrize("read", [read_as_recording, read_as_trace, read_as_log])
def test_any_bytes_are_read_or_refused(
    tmp_path: Path, read: Callable[[Path], None], content: bytes
) -> None:
    path = tmp_path / "any"
    path.write_bytes(content)
    with suppress(SpecError):
        read(path)
