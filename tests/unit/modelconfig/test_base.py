"""What the file says, what the server completes and what is asked for, told apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders.configs import config
from builders.messages_models import REPORTED

from tuner.modelconfig.base import Base, differences
from tuner.modelconfig.message import parse
from tuner.modelconfig.rules import Rule
from tuner.spec.paths import DYNAMIC_BATCHING, MAX_BATCH_SIZE, PREFERRED, QUEUE_TIMEOUT

DELAY = "dynamic_batching.max_queue_delay_microseconds"

COUNT = "instance_group.count"

#: As tritonserver 2.51 answers for a Python model whose code completes everything.
RUNNING = """
  name: "m" backend: "python" max_batch_size: 8 default_model_filename: "model.py"
  version_policy { latest { num_versions: 1 } }
  input { name: "x" data_type: TYPE_FP32 dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: 4 }
  instance_group { name: "m" count: 1 kind: KIND_CPU }
  dynamic_batching { preferred_batch_size: 8 }
  optimization { input_pinned_memory { enable: true } output_pinned_memory { enable: true } }
"""


def of_server(file: str = "", running: str = RUNNING, completes: bool = True) -> Base:
    return Base.of_server(parse(file), parse(running), completes=completes)


def changed(base: Base, **fields: Any) -> dict[str, Any]:
    names = {"size": MAX_BATCH_SIZE, "batcher": DYNAMIC_BATCHING, "delay": DELAY, "count": COUNT}
    return base.changes({{**names, "preferred": PREFERRED}[n]: v for n, v in fields.items()})


def test_plain_defaults_are_not_called_completed() -> None:
    base = of_server()
    assert base.completions == ("max_batch_size", "input", "output", "dynamic_batching")
    assert not base.completed.dynamic_batching.preferred_batch_size
    assert not base.completed.HasField("optimization")
    full = RUNNING.replace("preferred_batch_size: 8", "")
    assert of_server(full).completions == ()


def test_that_an_ensemble_answers_each_request_once_is_not_called_completed() -> None:
    file = 'name: "e" platform: "ensemble" ensemble_scheduling { step { model_name: "m" } }'
    base = of_server(file, f"{file} model_transaction_policy {{ }}", completes=False)
    assert base.completions == ()
    assert base.completed == base.file
    decoupled = f"{file} model_transaction_policy {{ decoupled: true }}"
    assert of_server(file, decoupled).completions == ("model_transaction_policy",)


def test_completed_fields_are_not_written() -> None:
    base = of_server()
    assert changed(base, size=8, batcher=True, delay=0, count=1, preferred=None) == {}
    assert changed(base, size=8, batcher=True, delay=500) == {DELAY: 500}
    assert changed(base, size=8, count=2) == {COUNT: 2}


def test_preferred_sizes_are_written_with_the_size_that_triton_compares_them_with() -> None:
    both = {MAX_BATCH_SIZE: 8, PREFERRED: (4,)}
    assert changed(of_server(), batcher=True, size=8, preferred=(4,)) == both
    assert changed(of_server("max_batch_size: 8"), preferred=(4,)) == {PREFERRED: (4,)}


def test_off_is_a_batcher_of_single_requests_where_the_server_turns_it_on() -> None:
    base = of_server("max_batch_size: 8")
    off = {DYNAMIC_BATCHING: None}
    assert list(base.request(off).dynamic_batching.preferred_batch_size) == [1]
    assert base.request({**off, MAX_BATCH_SIZE: 1}).dynamic_batching.ByteSize() == 0
    assert DYNAMIC_BATCHING not in base.read_back({**off, MAX_BATCH_SIZE: 1})
    plain = of_server("max_batch_size: 8", RUNNING.replace("dynamic_batching { pref", "# { pref"))
    assert not plain.request(off).HasField("dynamic_batching")


def test_queue_policy_of_batches_of_one_is_read_back() -> None:
    base = of_server("max_batch_size: 8")
    wanted = {DYNAMIC_BATCHING: True, MAX_BATCH_SIZE: 1, QUEUE_TIMEOUT: 1000}
    assert {*base.read_back(wanted)} == {*wanted}
    assert {*base.read_back({**wanted, QUEUE_TIMEOUT: 0})} == {MAX_BATCH_SIZE}


def test_a_size_that_the_server_overrides_is_refused() -> None:
    base = replace(of_server(), overridden=frozenset({MAX_BATCH_SIZE}))
    (violation,) = base.violations({MAX_BATCH_SIZE: 4})
    assert violation.rule is Rule.COMPLETED
    assert list(base.violations({MAX_BATCH_SIZE: 8})) == []
    assert list(of_server().violations({MAX_BATCH_SIZE: 4})) == []


@pytest.mark.parametrize(
    ("file", "count"),
    [
        ("", 1),
        ('backend: "python" instance_group { kind: KIND_CPU }', 1),
        ('backend: "onnxruntime" instance_group { kind: KIND_CPU }', 2),
        ('backend: "onnxruntime" instance_group { count: 3 kind: KIND_CPU }', 3),
    ],
)
def test_a_count_left_open_is_tritons_default(file: str, count: int) -> None:
    base = Base.of_file(parse(file))
    assert base.completed.instance_group[0].count == count
    assert changed(base, count=count) == {}


@pytest.mark.parametrize(
    ("file", "backend", "count"),
    [
        ("", "onnxruntime", 2),
        ("instance_group { }", "onnxruntime", 2),
        ("instance_group { kind: KIND_GPU }", "onnxruntime", 1),
        ("", "python", 1),
    ],
)
def test_without_a_gpu_a_group_that_says_nothing_is_on_the_cpu(
    file: str, backend: str, count: int
) -> None:
    (group,) = Base.of_file(parse(file), backend=backend, on_cpu=True).completed.instance_group
    assert group.count == count
    (group,) = Base.of_file(parse(file), backend=backend).completed.instance_group
    assert group.count == 1


IO = "input { name: 'x' data_type: TYPE_FP32 dims: 4 } output { name: 'y' dims: 4 }"


@pytest.mark.parametrize(
    ("file", "backend", "on"),
    [
        ("max_batch_size: 16", "onnxruntime", True),
        ("", "onnxruntime", True),
        (f"max_batch_size: 16 {IO}", "onnxruntime", False),
        (f"max_batch_size: 16 {IO}", "tensorrt", True),
        ("max_batch_size: 1", "tensorrt", False),
        ("max_batch_size: 16 sequence_batching { }", "onnxruntime", False),
        ("max_batch_size: 16", "openvino", False),
    ],
)
def test_a_batcher_that_the_backend_turns_on_is_no_change(
    file: str, backend: str, on: bool
) -> None:
    base = Base.of_file(parse(file), completes=True, backend=backend)
    assert base.completed.HasField("dynamic_batching") is on
    off = list(base.request({DYNAMIC_BATCHING: None}).dynamic_batching.preferred_batch_size)
    assert off == ([1] if on else [])
    if on:
        assert changed(base, batcher=True) == {}


def test_the_count_a_server_gives_is_known() -> None:
    running = 'backend: "onnxruntime" instance_group { name: "m_0" kind: KIND_CPU count: 2 }'
    base = of_server('backend: "onnxruntime"', running)
    assert changed(base, count=2) == {}
    assert changed(base, count=1) == {COUNT: 1}


def test_requested_group_is_the_only_one_of_a_file_without_groups() -> None:
    fields = {"instance_group[kind=KIND_CPU].count": 2}
    base = of_server()
    assert base.request(fields).instance_group == base.message(fields).instance_group
    (group,) = base.request(fields).instance_group
    assert (group.count, group.kind) == (2, group.KIND_CPU)


def test_open_batch_size_is_assumed_until_a_server_reports_it() -> None:
    assert Base.of_file(parse(""), completes=True).completed.max_batch_size == 4
    assert Base.of_file(parse(""), completes=False).completed.max_batch_size == 0
    assert Base.of_file(parse("max_batch_size: 8"), completes=True).completed.max_batch_size == 8


OWNED = (
    "max_batch_size",
    "dynamic_batching",
    "dynamic_batching.preferred_batch_size",
    "dynamic_batching.max_queue_delay_microseconds",
    "dynamic_batching.default_queue_policy.max_queue_size",
    "instance_group.count",
    "instance_group.kind",
    "instance_group.gpus",
    "default_model_filename",
    "version_policy.latest.num_versions",
    "optimization.input_pinned_memory.enable",
    "response_cache.enable",
    "parameters.threads",
)


def test_fields_that_triton_fills_in_are_no_difference():
    assert differences(config("dynamic_batching { }"), config(REPORTED), OWNED) == []


def test_only_the_owned_paths_are_compared():
    assert (
        differences(config("instance_group { count: 4 }"), config(REPORTED), ["max_batch_size"])
        == []
    )


def test_groups_are_matched_by_position_when_triton_changes_their_kind():
    requested = config("dynamic_batching { } instance_group { kind: KIND_AUTO count: 1 }")
    path = "instance_group[kind=KIND_AUTO].count"
    assert differences(requested, config(REPORTED), [path]) == []
    requested.instance_group[0].count = 2
    assert len(differences(requested, config(REPORTED), [path])) == 1


def test_sequence_defaults_are_known():
    requested = parse("max_batch_size: 4 sequence_batching { oldest { } }")
    running = parse(
        "max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: 1000000 "
        "oldest { preferred_batch_size: 4 } }"
    )
    paths = [
        "sequence_batching.max_sequence_idle_microseconds",
        "sequence_batching.oldest.preferred_batch_size",
        "sequence_batching.oldest",
    ]
    assert differences(requested, running, paths) == []
    running.sequence_batching.max_sequence_idle_microseconds = 7
    assert len(differences(requested, running, paths)) == 1


@pytest.mark.parametrize(
    ("platform", "dims", "size"),
    [
        ("tensorrt_plan", "1, 3, 8, 8", 0),
        ("tensorrt_plan", "3, 8, 8", 4),
        ("", "1, 3, 8, 8", 4),
    ],
)
def test_a_batch_that_the_file_of_a_model_fixes_is_not_left_to_the_server(
    platform: str, dims: str, size: int
) -> None:
    backend = f'platform: "{platform}"' if platform else 'backend: "python"'
    tensor = f'{{ name: "x" data_type: TYPE_FP32 dims: [ {dims} ] }}'
    file = parse(f"{backend} input {tensor} output {tensor}")
    base = Base.of_file(file, completes=True)
    assert base.completed.max_batch_size == size
    assert base.leaves_batch_open is bool(size)
    assert base.completed.HasField(DYNAMIC_BATCHING) is False or size == 4
