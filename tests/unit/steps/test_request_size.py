"""How large requests are is said before they are sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import SpecError
from tuner.steps.job import Job, Request, prepare
from tuner.steps.tools import LARGE_BYTES, request_notes


def job(tmp_path: Path, dims: str, inputs: str) -> Job:
    model = tmp_path / "repository" / "m"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(
        'name: "m" backend: "python" max_batch_size: 8\n'
        f'input {{ name: "x" data_type: TYPE_FP32 dims: {dims} }}\n'
        'output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }\n'
    )
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "model: m\nrepository: repository\nslo: [p99_latency <= 40ms]\n"
        f"workload: {{inputs: {inputs}}}\n"
        "space: {instance_group.count: {int: [1, 4]}}\n"
    )
    return prepare(Request(spec=spec))


def test_a_request_of_8_mib_is_not_sent_without_a_word(tmp_path: Path) -> None:
    large = job(tmp_path, "[ -1, -1, -1 ]", "{kind: random, shapes: {x: [128, 128, 128]}}")
    (note,) = request_notes(large, LARGE_BYTES)
    assert note.startswith("a request carries 8 MiB: x FP32[128, 128, 128]")
    assert "workload.inputs.shapes" in note


@pytest.mark.parametrize("dims", ["[ 4 ]", "[ 2, 2 ]"])
def test_a_plan_tells_the_size_and_a_run_only_a_large_one(tmp_path: Path, dims: str) -> None:
    small = job(tmp_path, dims, "{kind: random}")
    (note,) = request_notes(small)
    assert note.startswith("a request carries 16 B")
    assert [*request_notes(small, LARGE_BYTES)] == []


@pytest.mark.parametrize(
    ("count", "said"), [(1 << 18, False), ((1 << 18) + 1, True), (1 << 19, True)]
)
def test_more_than_a_mebibyte_is_large(count: int, said: bool, tmp_path: Path) -> None:
    large = request_notes(job(tmp_path, f"[ {count} ]", "{kind: random}"), LARGE_BYTES)
    assert bool([*large]) is said


def test_all_of_a_batch_and_every_tensor_count(tmp_path: Path) -> None:
    model = tmp_path / "repository" / "m"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(
        'name: "m" backend: "python" max_batch_size: 8\n'
        'input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }\n'
        'input { name: "text" data_type: TYPE_STRING dims: [ 2 ] }\n'
        'output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }\n'
    )
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "model: m\nrepository: repository\nslo: [p99_latency <= 40ms]\n"
        "workload: {batch_size: 3, inputs: {kind: random, string_length: 20}}\n"
        "space: {instance_group.count: {int: [1, 4]}}\n"
    )
    (note,) = request_notes(prepare(Request(spec=spec)))
    assert note == f"a request carries {3 * (16 + 2 * (4 + 20))} B: x FP32[4], text BYTES[2]"


def test_all_open_inputs_are_told_at_once_before_anything_starts_with_shapes_that_fit(
    tmp_path: Path,
) -> None:
    dims = '[ -1, 3, -1 ] } input { name: "z" data_type: TYPE_STRING dims: [ -1 ]'
    with pytest.raises(SpecError, match=r"x \[-1, 3, -1\], z \[-1\]") as told:
        job(tmp_path, dims, "{kind: random}")
    assert "inputs.shapes: {x: [128, 3, 128], z: [128]}" in told.value.hint
