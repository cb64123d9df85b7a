"""Configs by name that a search begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.model_files import write_model

from tuner.checks.first import note_recipes
from tuner.prepare.job import Job, Request, prepare
from tuner.space.recipes import RECIPES
from tuner.spec.model import Recipe
from tuner.spec.paths import DELAY, DYNAMIC_BATCHING, INSTANCES, MAX_BATCH_SIZE

CONFIG = """
name: "m" backend: "python" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 4 }
output { name: "y" data_type: TYPE_FP32 dims: 4 }
instance_group { count: 1 kind: KIND_CPU }
"""
SPACE = """
  instance_group.count: {int: [1, 4]}
  max_batch_size: {choice: [4, 8, 16]}
  dynamic_batching: {choice: [off, on]}
  dynamic_batching.max_queue_delay_microseconds: {int: [50, 1000], or: 0}
"""


def job(here: Path, space: str, recipes: str) -> Job:
    write_model(here / "models" / "m", CONFIG, "import this\n")
    text = "model: m\nrepository: models\nslo: [p99_latency <= 40ms]\n"
    (here / "spec.yaml").write_text(f"{text}space:{space}\nsearch: {{recipes: {recipes}}}\n")
    return prepare(Request(spec=here / "spec.yaml"))


def values(prepared: Job) -> list[tuple[Any, ...]]:
    fields = ({k.path: v for k, v in c.fields.items()} for c in prepared.first)
    paths = (INSTANCES, MAX_BATCH_SIZE, DYNAMIC_BATCHING, DELAY)
    return [tuple(field.get(path) for path in paths) for field in fields]


def test_every_recipe_has_its_values() -> None:
    assert set(RECIPES) == set(Recipe)


def test_recipes_go_first_in_the_order_of_the_spec(tmp_path: Path) -> None:
    prepared = job(tmp_path, SPACE, "[balanced, memory, throughput]")
    assert values(prepared) == [(2, 4, True, 0), (3, 8, True, 0), (1, 16, True, 0)]
    notes = [finding.message for finding in note_recipes(prepared)]
    assert notes[1] == "memory goes first: dynamic batching on, delay 0 us, instances 3"


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        ("\n  instance_group.count: {choice: [1, 8]}", [(8, None, None, None)]),
        ("\n  instance_group.count: {choice: [1, 2, 3]}", [(3, None, None, None)]),
        ("\n  parameters.threads: {choice: ['1', '2']}", [(None,) * 4]),
    ],
)
def test_numbers_that_a_space_lacks_become_its_nearest(
    space: str, expected: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    assert values(job(tmp_path, space, "[memory]")) == expected


def test_a_recipe_that_is_the_current_config_or_another_one_is_noted(tmp_path: Path) -> None:
    space = "\n  instance_group.count: {choice: [1, 3]}"
    prepared = job(tmp_path, space, "[throughput, memory, balanced]")
    assert values(prepared) == [(3, None, None, None)]
    first, second, third = (finding.message for finding in note_recipes(prepared))
    assert first == "throughput: the space has no such config, or it has another name"
    assert second == "memory goes first: instances 3"
    assert third == first.replace("throughput", "balanced")
