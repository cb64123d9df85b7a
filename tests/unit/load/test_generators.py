from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tuner.load.generators import (
    GENERATORS,
    OWN_CLIENT,
    PERF_ANALYZER,
    Demand,
    GeneratorKind,
    choose,
    export_bytes,
    title_of,
)
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
    ("inputs", "batch_size", "may_refuse", "kind", "why"),
    [
        (SMALL, 1, False, PERF_ANALYZER, ""),
        (SMALL, 1, True, OWN_CLIENT, "gives no result when a request is refused"),
        (SMALL, 8, False, OWN_CLIENT, "about 20 kB each"),
        (IMAGE, 1, False, OWN_CLIENT, "about 3.0 MB each"),
    ],
)
def test_large_tensors_and_refusals_are_measured_with_tunes_own_client(
    inputs: str, batch_size: int, may_refuse: bool, kind: GeneratorKind, why: str
) -> None:
    found = choose([Demand(config(inputs, SMALL), {}, batch_size, may_refuse)])
    assert found.kind is kind
    assert why in found.why
    assert bool(found.why) == bool(why)


def test_several_streams_are_measured_with_tunes_own_client() -> None:
    one = Demand(config(SMALL, SMALL), {}, 1, may_refuse=False)
    assert choose([one]).kind is PERF_ANALYZER
    found = choose([one, one])
    assert found.kind is OWN_CLIENT
    assert found.why == "perf_analyzer sends one stream of requests, to one model"


def test_requests_with_a_priority_are_measured_with_tunes_own_client() -> None:
    found = choose([Demand(config(SMALL, SMALL), {}, 1, may_refuse=False, priority=1)])
    assert found.kind is OWN_CLIENT
    assert found.why == "perf_analyzer has no option for the priority of requests"


def test_the_first_generator_of_the_table_that_can_measures() -> None:
    asked = [Demand(config(IMAGE, SMALL), {}, 1, may_refuse=False)]
    for kind in GENERATORS[:-1]:
        assert kind.cannot(asked)
    assert choose(asked).kind is GENERATORS[-1]
    assert [title_of(kind.name) for kind in GENERATORS] == ["perf_analyzer", "tune's own client"]
    assert title_of("k6") == "k6"
