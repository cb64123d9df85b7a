from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tuner.load.generators import (
    GENERATORS,
    PERF_ANALYZER,
    TUNE_CLIENT,
    Demand,
    choose,
    export_bytes,
    title_of,
)
from tuner.load.traffic.decoupled.kind import Decoupled
from tuner.load.traffic.mixed_shapes.kind import MixedShapes
from tuner.load.traffic.sequences.kind import Sequences
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


ONE = Demand(config(SMALL, SMALL), {}, 1, may_refuse=False)


@pytest.mark.parametrize(
    ("demands", "why"),
    [
        ([ONE], ""),
        ([replace(ONE, may_refuse=True)], "gives no result when a request is refused"),
        ([replace(ONE, may_fail=True)], "gives no result when a request fails"),
        ([replace(ONE, batch_size=8)], "about 20 kB"),
        ([replace(ONE, config=config(IMAGE, SMALL))], "about 3.0 MB"),
        ([ONE, ONE], "perf_analyzer sends one stream of requests, to one model"),
        (
            [replace(ONE, unlike=(MixedShapes.unlike_perf_analyzer,))],
            "does not draw shapes by share, or measure them separately",
        ),
        (
            [replace(ONE, unlike=(Decoupled.unlike_perf_analyzer,))],
            "does not measure first responses, or report lost ones",
        ),
        (
            [replace(ONE, unlike=(Sequences.unlike_perf_analyzer,))],
            "perf_analyzer does not check the order of answers",
        ),
        ([replace(ONE, priority=1)], "perf_analyzer has no option for the priority of requests"),
    ],
)
def test_client_of_tune_measures_what_perf_analyzer_cannot(demands: list[Demand], why: str) -> None:
    choice = choose(demands)
    assert choice.kind is (TUNE_CLIENT if why else PERF_ANALYZER)
    assert why in choice.why
    assert bool(choice.why) == bool(why)


def test_the_first_generator_of_the_table_that_can_measures() -> None:
    demands = [Demand(config(IMAGE, SMALL), {}, 1, may_refuse=False)]
    for kind in GENERATORS[:-1]:
        assert kind.cannot(demands)
    assert choose(demands).kind is GENERATORS[-1]
    assert [title_of(kind.name) for kind in GENERATORS] == ["perf_analyzer", "tune's own client"]
    assert title_of("k6") == "k6"
