"""What is proposed of a model_warmup that was tried; `golden/messages` holds what is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tuner.load.probes.warming import CallTimes
from tuner.load.probes.warmup import WarmUp, block_for, propose
from tuner.load.setup import LoadTarget, ShapedInputs, Stream, StreamRequests
from tuner.load.traffic.encoding import TensorShape
from tuner.load.traffic.inputs import DrawnInputs
from tuner.load.traffic.wire import RequestForm
from tuner.modelconfig.message import parse
from tuner.server.server import Endpoints
from tuner.spec.workload import RandomInputs

WARM_UP = WarmUp("m", (1, 2), "model_warmup [\n]\n", 0.72, 0.005, 1.3, 0.006, 5.1)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_config_gets_it_as_a_comment_that_means_it_without_its_marks(end: str) -> None:
    text = f'name: "m"{end}max_batch_size: 4{end}'
    proposed = propose(text, WARM_UP)
    assert proposed.startswith(text)
    assert parse(proposed) == parse(text)
    assert proposed.replace("\r\n", "").count("\n") == (
        0 if end == "\r\n" else proposed.count("\n")
    )
    added = proposed.removeprefix(text).splitlines()
    above = [line.removeprefix("# ") for line in added[:-2]]
    assert " ".join(above).startswith(f"tune: {WARM_UP.sentence} ")
    assert max(map(len, added)) < 100
    assert "\n".join(line.removeprefix("# ") for line in added[-2:]) + "\n" == WARM_UP.block


def test_a_last_line_without_an_end_stays_a_line() -> None:
    assert propose('name: "m"', WARM_UP).splitlines()[0] == 'name: "m"'


@pytest.mark.parametrize(
    ("text", "warm_up"),
    [
        ("# model_warmup [", WARM_UP),
        ("model_warmup [ ]", WARM_UP),
        ("", replace(WARM_UP, first_warm_s=0.7)),
        ("", replace(WARM_UP, first_warm_s=None, refused="bad")),
    ],
)
def test_a_config_that_has_one_and_one_that_does_not_help_stay_as_they_are(
    text: str, warm_up: WarmUp
) -> None:
    assert propose(text, warm_up) == text


def test_each_size_of_each_shape_has_a_separate_sample(tmp_path: Path) -> None:
    form = RequestForm("m", {"ids": "INT64", "t": "BYTES"}, True, 1)
    shapes = tuple(
        ShapedInputs(
            DrawnInputs(
                RandomInputs(kind="random"),
                [TensorShape("ids", "INT64", (size,)), TensorShape("t", "BYTES", (1,))],
            ),
            f"[{size}]",
            0.5,
        )
        for size in (64, 256)
    )
    stream = Stream(
        "m", LoadTarget(Endpoints("h:1", "h:2", None)), form, shapes, StreamRequests("m")
    )
    slow = {2: CallTimes(0.7, 0.01), 1: CallTimes(0.9, 0.01, 3)}
    config = parse(block_for(stream, slow))
    assert [(w.batch_size, w.count) for w in config.model_warmup] == [
        (1, 3),
        (1, 3),
        (2, 0),
        (2, 0),
    ]
    names = [f"batch of {n} [{size}]" for n in (1, 2) for size in (64, 256)]
    assert [w.name for w in config.model_warmup] == names
    assert [list(w.inputs["ids"].dims) for w in config.model_warmup] == [[64], [256]] * 2
    assert all(w.inputs["t"].zero_data for w in config.model_warmup)
