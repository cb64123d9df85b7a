"""Answers compared; none of them comes from a model. Others are told in `golden/messages`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders.messages_probes import answer, compared
from tritonclient.grpc import service_pb2

from tuner.load.probes.answers import (
    Answer,
    ConfigAnswers,
    differences,
    largest_differences,
    unlike_config,
    vary,
)
from tuner.modelconfig.message import parse


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (answer(1.0, 2.0), answer(1.0005, 2.0)),
        (answer(1.0, 1e-9), answer(1.0, 2e-4)),  # nearly zero beside the other
        (answer(np.nan, np.inf, 1.0), answer(np.nan, np.inf, 1.0)),
        (answer(np.nan), answer(np.nan)),
        (answer(), answer()),
        (answer(3, dtype="i8"), answer(3, dtype="i8")),
        (answer(True, dtype="?"), answer(True, dtype="?")),
        (answer(b"text", dtype="O"), answer(b"text", dtype="O")),
        (Answer({}, "negative input"), Answer({}, "negative input of 3")),
        (Answer({}, "exceeds maximum queue size", rejected=True), answer(1.0)),
    ],
)
def test_equal_answers_have_no_differences(one: Answer, other: Answer) -> None:
    assert compared(one, other) == []


def test_no_tolerance_means_equal() -> None:
    near = np.nextafter(np.float32(1.0), np.float32(2.0))
    assert compared(answer(1.0), answer(near)) == []
    assert len(compared(answer(1.0), answer(near), tolerance=0.0)) == 1
    assert compared(answer(1.0, np.inf), answer(1.0, np.inf), tolerance=0.0) == []


def question(*shape: int) -> bytes:
    request = service_pb2.ModelInferRequest(model_name="m")
    request.inputs.add(name="x", datatype="FP32", shape=shape)
    request.raw_input_contents.append(bytes(4 * int(np.prod(shape))))
    return bytes(request.SerializeToString())


def varied(config: str, shape: tuple[int, ...], names: tuple[str, ...] | None) -> dict[str, Any]:
    read = service_pb2.ModelInferRequest.FromString
    variants = vary(question(*shape), parse(config), names)
    return {how: read(request) for how, request in variants}


TENSORS = """
input { name: "x" data_type: TYPE_FP32 dims: %s }
output { name: "y" data_type: TYPE_FP32 dims: 1 } output { name: "z" data_type: TYPE_FP32 dims: 1 }
"""


def test_a_request_is_varied_in_what_the_cache_ignores() -> None:
    variants = varied("max_batch_size: 4" + TENSORS % "-1", (1, 8), ("scale", "mode"))
    assert [*variants] == ["with other parameters", "for z alone", "in another shape"]
    assert {*variants["with other parameters"].parameters} == {"scale", "mode"}
    assert [output.name for output in variants["for z alone"].outputs] == ["z"]
    assert [*variants["in another shape"].inputs[0].shape] == [2, 4]
    assert len({tuple(request.raw_input_contents) for request in variants.values()}) == 1


@pytest.mark.parametrize(
    ("size", "dims", "shape", "new"),
    [
        (0, "[ -1, -1 ]", (2, 3), [3, 2]),
        (8, "[ -1, -1 ]", (1, 2, 3), [1, 3, 2]),
        (8, "[ -1, -1 ]", (1, 4, 4), [2, 2, 4]),
        (8, "[ 3, -1 ]", (1, 3, 6), [2, 3, 3]),
        (1, "[ -1 ]", (1, 8), None),  # no room for a second row
        (8, "[ -1 ]", (1, 7), None),
        (8, "[ 8 ]", (1, 8), None),
        (0, "[ -1 ]", (8,), None),
    ],
)
def test_other_shapes_are_those_that_the_config_allows(
    size: int, dims: str, shape: tuple[int, ...], new: list[int] | None
) -> None:
    variants = varied(f"max_batch_size: {size}" + TENSORS % dims, shape, ())
    assert "with other parameters" not in variants
    request = variants.get("in another shape")
    assert (None if request is None else [*request.inputs[0].shape]) == new


def test_without_a_cache_nothing_is_varied() -> None:
    assert varied("max_batch_size: 4" + TENSORS % "-1", (1, 8), None) == {}


def test_answers_to_varied_requests_are_compared() -> None:
    one, other = (
        ConfigAnswers((answer(1.0),), varied=(("input 0 asked for y alone", answer(value)),))
        for value in (1.0, 2.0)
    )
    assert differences(one, one, 0.0) == []
    (text,) = differences(one, other, 0.0)
    assert text.startswith("input 0 asked for y alone: output y differs")


def _answered(datatype: str, *shape: int) -> bytes:
    from tritonclient.grpc import service_pb2

    output = {"name": "y", "datatype": datatype, "shape": shape}
    answer: bytes = service_pb2.ModelInferResponse(outputs=[output]).SerializeToString()
    return answer


@pytest.mark.parametrize(
    ("config", "returned", "expected"),
    [
        ("dims: [3]", ("FP32", 1, 3), []),
        ("dims: [3]", ("FP32", 4, 3), []),
        ("dims: [-1, 3]", ("FP32", 1, 7, 3), []),
        ("dims: [3]", ("FP32", 1, 1), ["y is FP32 [1], not FP32 [3]"]),
        ("dims: [3]", ("FP64", 1, 3), ["y is FP64 [3], not FP32 [3]"]),
        ("dims: [3]", ("FP32", 1, 3, 1), ["y is FP32 [3, 1], not FP32 [3]"]),
    ],
)
def test_outputs_unlike_the_config_are_named(
    config: str, returned: tuple[str, int], expected: list[str]
) -> None:
    output = f'output {{ name: "y" data_type: TYPE_FP32 {config} }}'
    answer = _answered(*returned)
    assert unlike_config(answer, parse(f"max_batch_size: 8 {output}", "")) == expected


def test_without_batching_the_first_dimension_is_one_of_the_config() -> None:
    config = parse('output { name: "y" data_type: TYPE_STRING dims: [2] }', "")
    assert unlike_config(b"no protobuf", config) == []
    assert unlike_config(_answered("BYTES", 2), config) == []
    assert unlike_config(_answered("BYTES", 1, 2), config) == ["y is BYTES [1, 2], not BYTES [2]"]


def test_output_can_have_a_separate_tolerance_and_its_difference_is_reported() -> None:
    one = Answer({"logits": np.array([1.0, 2.0]), "scores": np.array([1.0, 1.0])})
    other = Answer({"logits": np.array([1.02, 2.0]), "scores": np.array([1.0, 1.0])})
    a, b = ConfigAnswers(alone=(one,)), ConfigAnswers(alone=(other,))
    assert len(differences(a, b, 0.001)) == 1
    assert differences(a, b, 0.001, {"logits": 0.02}) == []
    assert len(differences(a, b, 0.1, {"logits": 0.001})) == 1
    assert largest_differences(a, b) == {"logits": pytest.approx(0.02 / 2.5)}
    assert largest_differences(a, a) == {}
