from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tuner.load.choice import Client, choose, export_bytes
from tuner.modelconfig.message import parse


def config(inputs: str, outputs: str) -> object:
    return parse(f"input [ {inputs} ] output [ {outputs} ]", "config.pbtxt")


SMALL = '{ name: "x" data_type: TYPE_FP32 dims: [ 64 ] }'
IMAGE = '{ name: "x" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }'
TOKENS = '{ name: "ids" data_type: TYPE_INT64 dims: [ -1 ] }'
STATES = '{ name: "states" data_type: TYPE_FP32 dims: [ -1, 768 ] }'
JPEG = '{ name: "image" data_type: TYPE_STRING dims: [ 1 ] }'


@pytest.mark.parametrize(
    ("inputs", "outputs", "shapes", "expected"),
    [
        (SMALL, SMALL, {}, 20 * 128),
        (TOKENS, STATES, {"ids": (64,)}, 20 * (64 + 64 * 768)),
        (TOKENS, SMALL, {}, 20 * (128 + 64)),
        (JPEG, SMALL, {}, 100 + 20 * 64),
    ],
)
def test_the_size_of_an_export_is_estimated_from_the_tensors(
    inputs: str, outputs: str, shapes: Mapping[str, Sequence[int]], expected: int
) -> None:
    assert export_bytes(config(inputs, outputs), shapes) == expected


@pytest.mark.parametrize(
    ("inputs", "batch_size", "may_refuse", "client", "why"),
    [
        (SMALL, 1, False, Client.PERF_ANALYZER, ""),
        (SMALL, 1, True, Client.OWN, "gives no result when a request is refused"),
        (SMALL, 8, False, Client.OWN, "about 20 kB for each request"),
        (IMAGE, 1, False, Client.OWN, "about 3.0 MB for each request"),
    ],
)
def test_large_tensors_and_refusals_are_measured_with_tunes_own_client(
    inputs: str, batch_size: int, may_refuse: bool, client: Client, why: str
) -> None:
    found = choose(config(inputs, SMALL), {}, batch_size, may_refuse=may_refuse)
    assert found.client is client
    assert why in found.why
    assert bool(found.why) == bool(why)
