from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2
from tritonclient.utils import deserialize_bytes_tensor

from tuner.errors import LoadFailedError, SpecError
from tuner.load.traffic.encoding import TensorShape, build
from tuner.load.traffic.inputs import DrawnInputs
from tuner.load.traffic.request_file import read_requests
from tuner.load.traffic.wire import Content, RequestForm
from tuner.spec.workload import Protocol, RandomInputs


def form(datatype: str = "FP32", *, batched: bool = True, size: int = 1) -> RequestForm:
    return RequestForm("m", {"x": datatype}, batched=batched, batch_size=size)


def inferences(
    tmp_path: Path,
    *entries: Any,
    datatype: str = "FP32",
    shape: tuple[int, ...] = (2,),
    more: tuple[TensorShape, ...] = (),
) -> tuple[dict[str, Content], ...]:
    """What a file with these entries has."""
    path = tmp_path / "inputs.json"
    path.write_text(json.dumps({"data": entries}))
    return read_requests(path, (TensorShape("x", datatype, shape), *more)).entries


def parsed(request: bytes) -> Any:
    return service_pb2.ModelInferRequest.FromString(request)


def values(request: bytes, dtype: str = "f4") -> list[float]:
    return list(np.frombuffer(parsed(request).raw_input_contents[0], dtype=dtype).tolist())


def test_generated_inputs_are_sent_as_they_were_drawn() -> None:
    tensors = (TensorShape("x", "FP32", (2,)), TensorShape("s", "BYTES", (1,)))
    drawn = DrawnInputs(RandomInputs(kind="random", unique=3), tensors).of_run(1, 3).inferences
    both = RequestForm("m", {"x": "FP32", "s": "BYTES"}, True, 1)
    requests = [parsed(request) for request in build(drawn, both, 10)]
    assert [request.model_name for request in requests] == ["m"] * 3
    assert [(t.name, t.datatype, list(t.shape)) for t in requests[0].inputs] == [
        ("x", "FP32", [1, 2]),
        ("s", "BYTES", [1, 1]),
    ]
    assert len(requests[0].raw_input_contents[0]) == 8
    assert len({request.SerializeToString() for request in requests}) == 3


def test_a_request_may_lack_an_optional_input(tmp_path: Path) -> None:
    both = RequestForm("m", {"x": "FP32", "y": "FP32"}, batched=False, batch_size=1)
    optional = (TensorShape("y", "FP32", (1,), optional=True),)
    path = inferences(tmp_path, {"x": [1, 2]}, {"x": [3, 4], "y": [5]}, more=optional)
    assert [len(parsed(request).inputs) for request in build(path, both, 2)] == [1, 2]
    with pytest.raises(LoadFailedError, match="shapes differ"):
        build(path, replace(both, batched=True, batch_size=2), 1)


def test_a_shape_tensor_has_no_batch_and_is_the_same_for_all_rows(tmp_path: Path) -> None:
    both = RequestForm(
        "m", {"x": "FP32", "size": "INT32"}, True, 2, shape_tensors=frozenset({"size"})
    )
    sizes = (TensorShape("size", "INT32", (2,)),)
    rows = ({"x": [1, 2], "size": [7, 9]}, {"x": [3, 4], "size": [7, 9]})
    (request, _) = build(inferences(tmp_path, *rows, more=sizes), both, 2)
    assert {t.name: list(t.shape) for t in parsed(request).inputs} == {"x": [2, 2], "size": [2]}
    rows[1]["size"] = [8, 9]
    with pytest.raises(LoadFailedError, match="shape tensor size: values differ"):
        build(inferences(tmp_path, *rows, more=sizes), both, 2)


@pytest.mark.parametrize("given", [[1, 2], {"content": [1, 2]}, {"content": [[1], [2]]}], ids=str)
def test_values_are_turned_into_the_datatype(tmp_path: Path, given: Any) -> None:
    (request,) = build(inferences(tmp_path, {"x": given}, datatype="INT16"), form("INT16"), 10)
    assert values(request, "i2") == [1, 2]


def test_strings_arrive_as_they_were_sent(tmp_path: Path) -> None:
    (request,) = build(inferences(tmp_path, {"x": ["a", "bé"]}, datatype="BYTES"), form("BYTES"), 1)
    contents = deserialize_bytes_tensor(parsed(request).raw_input_contents[0])
    assert [text.decode() for text in contents] == ["a", "bé"]


def test_bfloat16_is_the_upper_half_of_a_float(tmp_path: Path) -> None:
    (request,) = build(inferences(tmp_path, {"x": [1.0, -2.0]}, datatype="BF16"), form("BF16"), 1)
    assert parsed(request).raw_input_contents[0] == bytes.fromhex("803f00c0")


def test_batches_take_consecutive_inputs_and_go_round(tmp_path: Path) -> None:
    path = inferences(tmp_path, *({"x": [i, i]} for i in range(3)))
    requests = build(path, form(size=2), 10)
    assert [values(request)[::2] for request in requests] == [[0, 1], [2, 0], [1, 2]]
    assert list(parsed(requests[0]).inputs[0].shape) == [2, 2]


def test_without_a_batch_dimension_shapes_are_the_models(tmp_path: Path) -> None:
    (request,) = build(inferences(tmp_path, {"x": [1, 2]}), form(batched=False), 1)
    assert list(parsed(request).inputs[0].shape) == [2]


def test_no_more_than_needed_is_built_and_equal_requests_are_one(tmp_path: Path) -> None:
    path = inferences(tmp_path, *({"x": [i % 2, 0]} for i in range(6)))
    requests = build(path, form(), 4)
    assert len(requests) == 4
    assert requests[0] is requests[2]


def test_a_variable_dimension_needs_a_shape(tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        inferences(tmp_path, {"x": [1, 2]}, shape=(-1,))
    given = {"x": {"content": [1, 2, 3], "shape": [3]}}
    (request,) = build(inferences(tmp_path, given, shape=(-1,)), form(), 1)
    assert list(parsed(request).inputs[0].shape) == [1, 3]


@pytest.mark.parametrize("priority", [0, 2])
def test_a_priority_goes_with_every_request_and_none_is_left_to_the_model(
    tmp_path: Path, priority: int
) -> None:
    path = inferences(tmp_path, {"x": [1, 2]})
    request_form = replace(form(), priority=priority)
    (request,) = build(path, request_form, 1)
    sent = {name: value.uint64_param for name, value in parsed(request).parameters.items()}
    (over_http,) = build(path, request_form, 1, Protocol.HTTP, ["Host: h:1"])
    head, _, body = over_http.partition(b"\r\n\r\n")
    size = int(re.search(rb"Inference-Header-Content-Length: (\d+)", head)[1])  # type: ignore[index]
    parameters = json.loads(body[:size])["parameters"]
    expected = {"priority": priority} if priority else {}
    assert sent == expected
    assert parameters == {"binary_data_output": True, **expected}
