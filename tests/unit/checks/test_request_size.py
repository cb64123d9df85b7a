"""What of requests is told before they are sent; `golden/messages` holds what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.messages_requests import (
    CHARGE,
    FLOATS,
    SMALL,
    TEXT,
    made_up,
    played,
    prepared,
    recorded,
    replayed,
    request_notes,
)

from tuner.checks.requests import drawn_tensors
from tuner.load.traffic.encoding import build, drawn_bytes, random_contents
from tuner.load.traffic.wire import Content, RequestForm
from tuner.spec.mistakes import FindingSeverity
from tuner.spec.workload import Protocol, RandomInputs, Workload


@pytest.mark.parametrize(
    ("count", "said"), [(4, False), (1 << 18, False), ((1 << 18) + 1, True), (1 << 19, True)]
)
def test_more_than_a_mebibyte_is_large(count: int, said: bool, tmp_path: Path) -> None:
    large = request_notes(made_up(tmp_path, f"[ {count} ]"), FindingSeverity.NOTED)
    assert bool(large) is said


@pytest.mark.parametrize(
    ("inputs", "entries"),
    [
        (CHARGE.replace("INT32", "FP32"), [{"charge": [1]}, {"charge": [[2]]}]),
        (CHARGE, [{"charge": {"b64": "AAAAAA=="}, "model": "m"}]),
        (CHARGE, [{"charge": {"content": {"b64": "AAAAAA=="}, "shape": [1]}}]),
        (CHARGE + SMALL, [{"charge": [1]}, {"charge": [1], "x": [1, 2]}]),
        (TEXT, [{"text": {"content": ["a", "bé"], "shape": [2]}}]),
        (CHARGE.replace("TYPE_INT32", "TYPE_BOOL"), [{"charge": [True]}]),
    ],
)
def test_all_forms_of_perf_analyzer_are_taken(
    tmp_path: Path, inputs: str, entries: list[Any]
) -> None:
    (figures,) = recorded(tmp_path, inputs, *entries).recorded.values()
    assert figures.count == len(entries)


def test_a_list_in_the_list_is_a_sequence_of_requests(tmp_path: Path) -> None:
    charge = {"charge": [1]}
    job = played(tmp_path, [charge, charge], [charge] * 3)
    (figures,) = job.recorded.values()
    assert (figures.count, figures.lengths) == (5, (2, 3))


@pytest.mark.parametrize(
    "config",
    [
        FLOATS % "[ 3, 64, 64 ]",
        FLOATS.replace("FP32", "FP64") % "[ 50 ]",
        FLOATS.replace("FP32", "INT64") % "[ 128 ]",
        FLOATS.replace("FP32", "BOOL") % "[ 64 ]",
        FLOATS.replace("FP32", "STRING") % "[ 8 ]",
    ],
)
def test_size_in_json_is_that_of_the_body_which_is_sent(config: str, tmp_path: Path) -> None:
    job = prepared(tmp_path, config, "protocol: http-json")
    (stream,) = job.spec.streams.values()
    ((tensor,),) = drawn_tensors(stream, job.served.models["m"])
    assert isinstance(stream.inputs, RandomInputs)
    rng = np.random.default_rng(5)
    (raw,) = random_contents(tensor, 1, rng, stream.inputs.int_range, stream.inputs.string_length)
    form = RequestForm("m", {"x": tensor.datatype}, batched=True, batch_size=1)
    content = Content(tensor.shape, raw)
    (request,) = build([{"x": content}], form, 1, Protocol.HTTP_JSON)
    elements = len(request.partition(b'"data": ')[2]) - len("}]}")
    size = drawn_bytes(tensor, stream.inputs, in_json=True)
    assert size == pytest.approx(elements, rel=0.05)


def test_a_recorded_request_has_its_size_in_json(tmp_path: Path) -> None:
    rows = [
        {"due_s": k / 8, "inputs": {"ids": {"content": [7] * 9, "shape": [9]}}} for k in range(17)
    ]
    job = replayed(tmp_path, rows, more=", protocol: http-json")
    (figures,) = job.recorded.values()
    assert (figures.least_bytes, figures.most_bytes) == (27, 27)  # [7, 7, 7, 7, 7, 7, 7, 7, 7]


def test_inputs_in_shared_memory_are_never_json() -> None:
    given = {"protocol": "http-json", "shared_memory": "system"}
    assert not Workload.model_validate(given).in_json
