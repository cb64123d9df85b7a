"""A winner at an edge of the space is told with the line to change, where a wider one is valid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.measurements import P99_40MS, synthetic_measurement
from builders.proving import OTHER

from tuner.meter.session import Session
from tuner.prepare.job import Job, Request, prepare
from tuner.proof.edges import next_beyond, with_edges
from tuner.record.proved import ProvedConfig
from tuner.record.result_schema import Edge, RunDecision
from tuner.record.status import Status
from tuner.score.point import judge_point
from tuner.space.candidate import Candidate
from tuner.space.parameters import ChoiceParameter, Knob, RangeParameter

KNOB = Knob("m", "max_batch_size")
CONFIG = """\
backend: "python"
max_batch_size: 8
dynamic_batching {{ }}
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 1 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 1 ] }} ]
{more}
"""


PROVED = ProvedConfig.of(OTHER, [judge_point([P99_40MS], synthetic_measurement())])


def edges(here: Path, space: dict[str, Any], winner: dict[str, Any], more: str = "") -> list[Edge]:
    model = here / "models" / "m"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text("class TritonPythonModel:\n  execute = None\n")
    (model / "config.pbtxt").write_text(CONFIG.format(more=more))
    spec = {
        "model": "m",
        "repository": str(here / "models"),
        "slo": ["p99_latency <= 40ms"],
        "space": space,
    }
    (here / "spec.yaml").write_text(yaml.safe_dump(spec))
    job: Job = prepare(Request(spec=here / "spec.yaml"))
    nothing: Any = None
    session = Session(job, nothing, events=nothing, book=nothing, checkpoint=lambda: None)
    fields = {**job.space.current.models["m"], **winner}
    proved = replace(PROVED, candidate=Candidate.of_models({"m": fields}))
    verdict = RunDecision.of(Status.IMPROVED, (), winner=proved)
    return list(with_edges(session, [], verdict).edges)


def test_largest_listed_value_is_reported_with_the_next_one(tmp_path: Path) -> None:
    space = {"max_batch_size": {"choice": [8, 16, 32]}, "instance_group.count": {"int": [1, 4]}}
    (edge,) = edges(tmp_path, space, {"max_batch_size": 32, "instance_group.count": 2})
    assert (edge.field, edge.value, edge.largest, edge.allowed) == (
        "max_batch_size",
        32,
        True,
        "[8, 16, 32]",
    )
    assert edge.wider == "{choice: [8, 16, 32, 64]}"
    assert yaml.safe_load(edge.wider) == {"choice": [8, 16, 32, 64]}


def test_both_ends_of_a_range_are_edges_but_one_instance_is_a_natural_one(tmp_path: Path) -> None:
    space = {
        "instance_group.count": {"int": [1, 4]},
        "dynamic_batching.max_queue_delay_microseconds": {"int": [50, 9000], "log": True},
    }
    delay = "dynamic_batching.max_queue_delay_microseconds"
    low = edges(tmp_path / "low", space, {"instance_group.count": 1, delay: 50})
    assert [(e.field, e.largest, e.wider) for e in low] == [
        (delay, False, "{int: [25, 9000], log: true}")
    ]
    high = edges(tmp_path / "high", space, {"instance_group.count": 4, delay: 9000})
    assert {e.field: e.wider for e in high} == {
        "instance_group.count": "{int: [1, 8]}",
        delay: "{int: [50, 18000], log: true}",
    }


@pytest.mark.parametrize("value", [0, 50])
def test_where_off_is_allowed_its_lower_end_is_no_edge(tmp_path: Path, value: int) -> None:
    delay = "dynamic_batching.max_queue_delay_microseconds"
    space = {delay: {"int": [50, 9000], "or": 0}}
    assert edges(tmp_path, space, {delay: value}) == []


def test_a_delay_beyond_what_the_slo_allows_is_not_proposed(tmp_path: Path) -> None:
    delay = "dynamic_batching.max_queue_delay_microseconds"
    assert edges(tmp_path, {delay: {"int": [50, 30_000]}}, {delay: 30_000}) == []


def test_a_value_that_triton_would_refuse_is_not_proposed(tmp_path: Path) -> None:
    """A warm-up sample has more rows than the smaller size allows."""
    more = (
        'model_warmup { name: "w" batch_size: 8 inputs { key: "x" '
        "value { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } }"
    )
    space = {"max_batch_size": {"choice": [12, 32]}}
    assert edges(tmp_path / "a", space, {"max_batch_size": 12}) != []
    assert edges(tmp_path / "b", space, {"max_batch_size": 12}, more) == []


@pytest.mark.parametrize(
    ("parameter", "value", "beyond"),
    [
        (ChoiceParameter(KNOB, (8, 16, 32)), 32, 64),
        (ChoiceParameter(KNOB, (8, 16, 32)), 8, 4),
        (ChoiceParameter(KNOB, (8, 16, 32)), 16, None),
        (ChoiceParameter(KNOB, (10, 15)), 15, 20),
        (ChoiceParameter(KNOB, (1, 100)), 100, 199),
        (RangeParameter(KNOB, 4, 12, step=4), 12, 24),
        (RangeParameter(KNOB, 4, 12, step=4), 4, None),
        (RangeParameter(KNOB, 1, 6), 6, 12),
        (RangeParameter(KNOB, 1, 6), 1, None),
    ],
)
def test_the_next_value_continues_those_that_are_allowed(
    parameter: ChoiceParameter | RangeParameter, value: int, beyond: int | None
) -> None:
    assert next_beyond(parameter, value) == beyond
