"""Models asked on a real server."""

from __future__ import annotations

import json

import pytest
from builders.candidates import the_one
from builders.load_bench import Bench
from builders.strings import needs_strings

from tuner.load.probes.answers import ConfigAnswers, differences
from tuner.load.setup import StreamRequests
from tuner.spec.workload import RandomInputs

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.mark.parametrize("model", ["plain", "cached"])
def test_a_model_agrees_with_itself_alone_and_in_company(bench: Bench, model: str) -> None:
    generator = bench.generator(model, inputs={"kind": "random", "unique": 50})
    one, other = the_one(generator.answers()), the_one(generator.answers())
    assert one.none_because == ""
    assert len(one.alone) == 16
    assert len(one.together) > 16
    assert {a.outputs["y"].shape for a in one.together} == {(1, 8)}
    assert len({a.outputs["y"].tobytes() for a in one.alone}) == 16
    assert differences(one, other, 0.0) == []


def test_answers_of_the_cache_to_other_requests_are_seen(bench: Bench) -> None:
    """The cache ignores parameters, requested outputs and shapes (tritonserver 2.51)."""

    def answers(model: str) -> ConfigAnswers:
        inputs = RandomInputs(kind="random", unique=4, shapes={"x": (8,)})
        streams = {"": StreamRequests(model, inputs, varied=("scale",))}
        return the_one(bench.streams(streams).answers())

    plain = answers("scaling")
    assert differences(plain, answers("scaling"), 0.0) == []
    unlike = differences(plain, answers("scaling-cached"), 0.0)
    ways = (
        "with other parameters: output y differs",
        "for y alone: output size",
        "in another shape",
    )
    for way in ways:
        assert any(way in text for text in unlike), way


def answers_to(bench: Bench, inputs: object) -> ConfigAnswers:
    """What ``plain`` answers to the inputs of a file."""
    path = bench.directory / "inputs.json"
    path.write_text(json.dumps({"data": inputs}))
    return the_one(bench.generator("plain", inputs={"kind": "file", "file": str(path)}).answers())


def test_errors_of_the_model_are_answers(bench: Bench) -> None:
    probed = answers_to(bench, [{"x": [1.0] * 8}, {"x": [-1.0] * 8}])
    assert [a.error for a in probed.alone] == ["", "negative input"]
    assert probed.alone[0].outputs["y"].tolist() == [[1.0] * 8]


def test_each_request_of_a_sequence_is_probed(bench: Bench) -> None:
    probed = answers_to(bench, [[{"x": [1.0] * 8}, {"x": [2.0] * 8}]])
    assert [answer.outputs["y"].tolist() for answer in probed.alone] == [[[1.0] * 8], [[2.0] * 8]]


@needs_strings
def test_outputs_of_every_datatype_are_requested_and_compared(bench: Bench) -> None:
    shapes = {tensor.name: (3, 2) for tensor in bench.control.running_config("types").input}
    inputs = {"kind": "random", "unique": 9, "shapes": shapes}
    answers = the_one(bench.generator("types", inputs=inputs).answers())
    assert len(answers.alone) == 9
    assert {a.outputs["sizes"].tolist()[0][0] for a in answers.alone} == {6}


def test_sequential_and_concurrent_request_times_are_probed_without_a_load_generator(
    bench: Bench,
) -> None:
    """One instance, 10 ms each."""
    generator = bench.generator("plain")
    alone_s, twenty_s = generator.seconds_for(1, 30.0), generator.seconds_for(20, 30.0)
    assert alone_s is not None
    assert twenty_s is not None
    assert 0.010 <= alone_s < 5.0
    assert 0.200 <= twenty_s < 20.0
