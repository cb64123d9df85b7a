"""Kinds of mistakes that people bring, each in a repository as somebody has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.model_files import write_model

from tuner.checks.table import sentences
from tuner.errors import SpecError
from tuner.lint.repository import lint_repository
from tuner.lint.rules import Severity as LintSeverity
from tuner.modelconfig.known_backends import BACKENDS
from tuner.prepare.job import Job, Request, prepare
from tuner.spec.mistakes import FindingSeverity
from tuner.triton.needs import image_with

HEAD = "repository: models\nslo: [p99_latency <= 100ms]\n"
IO = """
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }
"""
BATCHED = f'backend: "python" max_batch_size: 8 dynamic_batching {{ }} {IO}'


def job(here: Path, spec: str, **configs: str) -> Job:
    for name, config in configs.items():
        write_model(here / "models" / name, config, "import this\n")
    (here / "spec.yaml").write_text(HEAD + spec)
    return prepare(Request(spec=here / "spec.yaml"))


def notes(found: Job) -> list[str]:
    return sentences(found.case, FindingSeverity.NOTED, FindingSeverity.MINOR)


def linted(here: Path, config: str, *files: str, rule: str = "") -> list[Any]:
    write_model(here / "m", config)
    for file in files:
        (here / "m" / "1" / file).touch()
    return [f for f in lint_repository(here) if not rule or f.rule == rule]


ROWS = "model: m\nworkload: {batch_size: %d}\nspace: {max_batch_size: {choice: %s}}\n"


def test_requests_of_more_rows_than_a_batch_are_refused_with_both_places(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        job(tmp_path, ROWS % (16, "[4, 8]"), m=BATCHED)
    assert "spec.yaml:4:24: workload.batch_size: a request has 16 rows" in error.value.message
    assert "m takes 8 at most" in error.value.message
    assert "config.pbtxt:1:" in error.value.message


def test_sizes_below_the_rows_of_a_request_are_not_tried(tmp_path: Path) -> None:
    found = job(tmp_path, ROWS % (8, "[4, 8, 16]"), m=BATCHED)
    assert found.space.size().count == 2
    assert any("not tried: max_batch_size 4: requests have 8 rows" in note for note in notes(found))


def test_request_that_fills_a_batch_is_noted(tmp_path: Path) -> None:
    space = "space: {dynamic_batching.max_queue_delay_microseconds: {choice: [0, 100]}}\n"
    found = job(tmp_path, f"model: m\nworkload: {{batch_size: 8}}\n{space}", m=BATCHED)
    assert any("a request fills a batch of m" in note for note in notes(found))
    half = f"model: m\nworkload: {{batch_size: 4}}\n{space}"
    (tmp_path / "spec.yaml").write_text(HEAD + half)
    assert not any("fills a batch" in n for n in notes(prepare(Request(tmp_path / "spec.yaml"))))


TOKENS = """
platform: "onnxruntime_onnx" max_batch_size: 32
input [ { name: "input_ids" data_type: TYPE_INT64 dims: [ -1, -1 ] },
        { name: "attention_mask" data_type: TYPE_INT64 dims: [ -1, -1 ] } ]
output [ { name: "last_hidden_state" data_type: TYPE_FP32 dims: [ -1, -1, 384 ] } ]
"""


@pytest.mark.parametrize(
    ("config", "places"),
    [
        (TOKENS, [3]),
        (TOKENS.replace("[ -1, -1 ]", "[ -1 ]"), []),
        (f'backend: "python" max_batch_size: 4 {IO}'.replace("[ 4 ]", "[ -1, 768 ]"), []),
        (
            (
                'backend: "python" max_batch_size: 4 input { name: "images" data_type: TYPE_FP32 '
                f"dims: [ -1, 3, 640, 640 ] }} {IO.splitlines()[2]}"
            ),
            [1],
        ),
    ],
)
def test_dims_that_repeat_the_batch_are_noted_once(
    config: str, places: list[int], tmp_path: Path
) -> None:
    assert [f.line for f in linted(tmp_path, config, rule="batch-in-dims")] == places


def test_batch_that_the_file_fixes_is_noted_and_not_searched(tmp_path: Path) -> None:
    config = f'backend: "onnxruntime" {IO}'.replace("[ 4 ]", "[ 1, 3, 8, 8 ]")
    config = config.replace("[ 1 ]", "[ 1, 1000 ]")
    (found,) = linted(tmp_path, config, "model.onnx", rule="fixed-batch")
    assert found.severity is LintSeverity.NOTE


@pytest.mark.parametrize(
    ("batcher", "noted"),
    [
        ("preferred_batch_size: [ 16 ] default_queue_policy { max_queue_size: 4 }", True),
        ("max_queue_delay_microseconds: 100 default_queue_policy { max_queue_size: 4 }", True),
        ("preferred_batch_size: [ 16 ] default_queue_policy { max_queue_size: 64 }", False),
        ("default_queue_policy { max_queue_size: 4 }", False),
    ],
)
def test_queue_that_is_shorter_than_a_batch_is_noted(
    batcher: str, noted: bool, tmp_path: Path
) -> None:
    config = f'backend: "python" max_batch_size: 16 dynamic_batching {{ {batcher} }} {IO}'
    assert bool(linted(tmp_path, config, rule="short-queue")) is noted


DOCKER = """
model: m
server: {mode: docker, image: "nvcr.io/nvidia/tritonserver:%s-py3", shm_size: 64MiB}
space: {instance_group.count: {int: [1, 8]}}
"""


@pytest.mark.parametrize(("release", "noted"), [("22.12", True), ("23.10", False)])
def test_shared_memory_of_python_processes_is_counted_by_release(
    release: str, noted: bool, tmp_path: Path
) -> None:
    found = notes(job(tmp_path, DOCKER % release, m=BATCHED))
    assert any("8 Python processes want 64 MiB" in note for note in found) is noted


def test_copies_of_the_weights_that_do_not_fit_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sysconf", lambda _: 1 << 11)  # 4 MiB of memory
    found = job(tmp_path, "model: m\nspace: {instance_group.count: {int: [1, 6]}}\n", m=BATCHED)
    (tmp_path / "models" / "m" / "1" / "weights.bin").write_bytes(bytes(1 << 20))
    (note,) = [note for note in notes(found) if "own copy" in note]
    assert "6 need" in note
    assert "enough for 3" in note


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            'backend: "openvino" parameters { key: "CPU_THREADS_NUM" value { string_value: "4" } }',
            "INFERENCE_NUM_THREADS took its place",
        ),
        (
            'backend: "dali" parameters { key: "num_thread" value { string_value: "4" } }',
            "did you mean num_threads?",
        ),
        (
            'backend: "dali" parameters { key: "num_threads" value { string_value: "all" } }',
            "a whole number is expected",
        ),
        (
            (
                'backend: "tensorrt" optimization { execution_accelerators { '
                'gpu_execution_accelerator { name: "tensorrt" } } }'
            ),
            "tensorrt reads no accelerators",
        ),
        (
            (
                'backend: "onnxruntime" parameters { key: "intra_op_thread_count" value { '
                'string_value: "2" } } optimization { execution_accelerators { '
                'cpu_execution_accelerator { name: "openvino" } } }'
            ),
            "the accelerator openvino ignores intra_op_thread_count",
        ),
        (
            (
                'backend: "openvino" max_batch_size: 1024 parameters { key: "ENABLE_BATCH_PADDING" '
                'value { string_value: "YES" } }'
            ),
            "a lone request costs 1024 rows",
        ),
    ],
)
def test_facts_about_a_backend_are_printed(config: str, words: str, tmp_path: Path) -> None:
    found = linted(tmp_path, f"{config} {IO}")
    assert any(words in f"{f.message} {f.hint}" for f in found), found


@pytest.mark.parametrize(
    ("backend", "files", "missing"),
    [
        ("openvino", ["model.xml"], "model.bin"),
        ("openvino", ["model.xml", "model.bin"], ""),
        ("dali", ["pipeline.dali"], "model.dali or dali.py"),
        ("dali", ["dali.py"], ""),
        ("vllm", ["vllm.json"], "model.json"),
    ],
)
def test_files_that_a_backend_needs_are_missed(
    backend: str, files: list[str], missing: str, tmp_path: Path
) -> None:
    found = linted(tmp_path, f'backend: "{backend}" {IO}', *files, rule="model-file")
    assert [missing in f.message for f in found] == [True] * bool(missing)


def test_version_that_is_not_served_may_lack_its_file(tmp_path: Path) -> None:
    write_model(tmp_path / "m", f'backend: "python" {IO}', "class TritonPythonModel: ...\n")
    (tmp_path / "m" / "3").mkdir()
    (tmp_path / "m" / "3" / "model.py").touch()
    (tmp_path / "m" / "2").mkdir()
    found = [f for f in lint_repository(tmp_path) if f.rule == "model-file"]
    assert [f.severity for f in found] == [LintSeverity.NOTE]


def test_every_backend_has_its_source_and_the_images_are_those_that_have_it() -> None:
    assert all(row.source for row in BACKENDS.values())
    assert image_with(["python", "onnxruntime"]) == "nvcr.io/nvidia/tritonserver:26.09-py3"
    assert image_with(["vllm", "onnxruntime"]) is None
    assert image_with(["my_engine"]) is None
