from __future__ import annotations

from pathlib import Path

import pytest
from builders.configs import CASES, case
from builders.ensemble_cases import ENSEMBLE, MODEL, step
from builders.messages_lint import COMPLETED, COMPLETING, EXECUTE, MODEL_PY, PYTHON, add

from tuner.errors import SpecError
from tuner.lint.model_calls import called_models
from tuner.lint.repository import faults_of, lint_repository
from tuner.lint.rules import Severity
from tuner.modelconfig.files import read_model
from tuner.modelconfig.schema import new_config


@pytest.fixture
def repository(tmp_path):
    return tmp_path


def rules(repository, model=None):
    return {f.rule for f in lint_repository(repository, model)}


def only(repository, model="m"):
    (finding,) = lint_repository(repository, model)
    return finding


def test_a_sound_model_has_no_findings(repository):
    add(repository, "m", PYTHON)
    assert lint_repository(repository) == []


@pytest.mark.parametrize("kept", ["", ".gitkeep"])
def test_an_empty_folder_is_a_note_and_no_model(repository, kept):
    add(repository, "m", PYTHON)
    (repository / "lost+found").mkdir()
    if kept:
        (repository / "lost+found" / kept).touch()
    finding = only(repository, None)
    assert (finding.rule, finding.severity) == ("empty-folder", Severity.NOTE)
    assert lint_repository(repository, "m") == []


def test_a_step_may_lie_in_another_repository(repository):
    add(repository, "e", ENSEMBLE, ["1/.gitkeep"])
    findings = [f for f in lint_repository(repository) if f.rule == "ensemble-step-model"]
    assert findings


def test_syntax_errors_have_their_place(repository):
    add(repository, "m", case("bad/priority_map"))
    finding = only(repository)
    assert (finding.line, finding.column, finding.rule) == (10, 5, "syntax")
    assert finding.severity is Severity.ERROR


def test_bytes_that_are_no_text(repository):
    add(repository, "m", "")
    (repository / "m" / "config.pbtxt").write_bytes(b"\xff")
    assert only(repository).rule == "encoding"


def test_triton_s_rules_are_errors_at_their_line(repository):
    add(repository, "m", PYTHON + "instance_group [\n  { kind: KIND_CPU\n    gpus: [ 0 ] }\n]\n")
    finding = only(repository)
    assert (finding.rule, finding.severity) == ("instance-gpus", Severity.ERROR)
    assert (finding.line, finding.column) == (6, 5)


def test_idle_settings_warn_and_those_that_need_flags_are_notes(repository):
    add(repository, "m", PYTHON + "response_cache { enable: true }\ninstance_group { count: -1 }")
    severities = {f.rule: f.severity for f in lint_repository(repository)}
    assert severities == {"cache-flag": Severity.NOTE, "instance-count": Severity.WARNING}


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        ("preferred-sizes-set", "dynamic_batching { preferred_batch_size: 8 }", ""),
        (
            "no-queue-timeout",
            "dynamic_batching { max_queue_delay_microseconds: 500000 }",
            (
                "dynamic_batching { max_queue_delay_microseconds: 500000 "
                "default_queue_policy { max_queue_size: 9 } }"
            ),
        ),
        (
            "timeout-within-delay",
            (
                "dynamic_batching { max_queue_delay_microseconds: 5000 "
                "default_queue_policy { default_timeout_microseconds: 1000 } }"
            ),
            (
                "dynamic_batching { max_queue_delay_microseconds: 1000 "
                "default_queue_policy { default_timeout_microseconds: 5000 } }"
            ),
        ),
        (
            "timeout-within-delay",
            (
                "dynamic_batching { max_queue_delay_microseconds: 5000 priority_levels: 1 "
                "default_priority_level: 1 priority_queue_policy { key: 1 "
                "value { default_timeout_microseconds: 1000 } } }"
            ),
            (
                "dynamic_batching { max_queue_delay_microseconds: 5000 priority_levels: 1 "
                "default_priority_level: 1 priority_queue_policy { key: 1 "
                "value { default_timeout_microseconds: 1000 timeout_action: DELAY } } }"
            ),
        ),
        (
            "stateless-sequences",
            "sequence_batching { oldest { } }",
            'sequence_batching { state { input_name: "s" output_name: "s" } }',
        ),
        (
            "unequal-shapes",
            'dynamic_batching { } input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }',
            'dynamic_batching { } input { name: "x" dims: [ -1 ] allow_ragged_batch: true }',
        ),
        (
            "unequal-shapes",
            'dynamic_batching { } input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }',
            'input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }',
        ),
        (
            "unequal-shapes",
            'dynamic_batching { } input { name: "ids" data_type: TYPE_INT32 dims: [ -1 ] }',
            'dynamic_batching { } input { name: "output_len" data_type: TYPE_INT32 dims: [ -1 ] }',
        ),
        (
            "unequal-shapes",
            'dynamic_batching { } input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }',
            'dynamic_batching { } input { name: "text" data_type: TYPE_STRING dims: [ -1 ] }',
        ),
        (
            "batch-in-dims",
            'output { name: "logits" data_type: TYPE_FP32 dims: [ -1, 2 ] }',
            'output { name: "logits" data_type: TYPE_FP32 dims: [ 2 ] }',
        ),
        (
            "batch-in-dims",
            'output { name: "labels" data_type: TYPE_FP32 dims: [ -1, 2 ] }',
            (
                'output { name: "labels" data_type: TYPE_FP32 dims: [ -1, 2 ] } '
                'output { name: "dets" data_type: TYPE_FP32 dims: [ -1, 4 ] }'
            ),
        ),
        (
            "batch-in-dims",
            'output { name: "prob" dims: [ -1, 2 ] } input { data_type: TYPE_INT64 dims: -1 }',
            'output { name: "prob" dims: [ -1, 2 ] } input { data_type: TYPE_FP16 dims: -1 }',
        ),
        (
            "batches-of-one",
            "dynamic_batching { preferred_batch_size: [ 1, 8 ] max_queue_delay_microseconds: 50 }",
            "dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 50 }",
        ),
        (
            "batches-of-one",
            (
                "sequence_batching { oldest { preferred_batch_size: 1 "
                "max_queue_delay_microseconds: 9 } }"
            ),
            "sequence_batching { oldest { preferred_batch_size: 1 } }",
        ),
        (
            "placeholder",
            'parameters { key: "vocab" value { string_value: "${vocab}" } }',
            'parameters { key: "vocab" value { string_value: "in ${HOME}/vocab" } }',
        ),
        (
            "mixed-kinds",
            "instance_group [ { kind: KIND_GPU }, { kind: KIND_CPU } ]",
            "instance_group [ { kind: KIND_GPU gpus: 0 }, { kind: KIND_GPU gpus: 1 } ]",
        ),
    ],
)
def test_settings_that_are_seldom_meant(repository, rule, bad, good):
    add(repository, "m", PYTHON + bad)
    assert rule in rules(repository)
    add(repository, "m", PYTHON + good)
    assert rule not in rules(repository)


@pytest.mark.parametrize(
    ("batching", "idle"),
    [
        ("", True),
        ("max_queue_delay_microseconds: 100000", True),
        ("default_queue_policy { max_queue_size: 9 }", False),
        ("priority_levels: 2 default_priority_level: 1", False),
        ("preserve_ordering: true", False),
    ],
)
def test_a_batcher_of_batches_of_one_is_idle_unless_it_orders_its_queue(repository, batching, idle):
    add(
        repository,
        "m",
        PYTHON.replace("max_batch_size: 8", "max_batch_size: 1")
        + f"dynamic_batching {{ {batching} }}",
    )
    assert ("batcher-without-batches" in rules(repository)) is idle


@pytest.mark.parametrize(
    ("backend", "files", "rule"),
    [
        ("onnxruntime", ["1/model.onnx"], "hidden-batcher"),
        ("tensorflow", [], "tensorflow"),
        ("vllm", [], "continuous-batching"),
    ],
)
def test_backends(repository, backend, files, rule):
    batching = "dynamic_batching { }" if backend == "vllm" else ""
    config = f'backend: "{backend}" max_batch_size: 8 {batching}'
    add(repository, "m", config, files or ["1/weights"])
    assert rule in rules(repository)
    add(repository, "m", config.replace(backend, "pytorch"), ["1/model.pt"])
    assert rule not in rules(repository)


def test_an_engine_for_several_gpus_lies_in_parts(repository):
    ranks = 'parameters { key: "multi_device_per_rank_engines" value { string_value: "%s" } }'
    for parted, reported in (("true", False), ("false", True)):
        config = f'backend: "tensorrt" max_batch_size: 8 {ranks % parted}'
        add(repository, "m", config, ["1/model.plan.rank0", "1/model.plan.rank1"])
        assert ("model-file" in rules(repository)) is reported


SPANNING = 'backend: "%s" max_batch_size: 8 instance_group [{ kind: %s count: %d }] %s'


@pytest.mark.parametrize(
    ("backend", "kind", "count", "gpus", "reported"),
    [
        ("tensorrt", "KIND_MODEL", 1, "0,1", False),
        ("tensorrt", "KIND_MODEL", 2, "0,1", True),
        ("tensorrt", "KIND_GPU", 1, "0,1", True),
        ("tensorrt", "KIND_GPU", 2, "0", False),
        ("tensorrtllm", "KIND_CPU", 2, "0,1;2,3", False),
        ("tensorrtllm", "KIND_CPU", 1, "0,1;2,3", True),
        ("tensorrtllm", "KIND_CPU", 1, "0,1", False),
        ("tensorrtllm", "KIND_CPU", 3, "${gpu_device_ids}", False),
    ],
)
def test_instances_fit_the_lists_of_gpus(repository, backend, kind, count, gpus, reported):
    key = "multi_device_gpus" if backend == "tensorrt" else "gpu_device_ids"
    for on in ("true", "1"):
        parameters = value(key, gpus) + value("enable_multi_device", on)
        add(repository, "m", SPANNING % (backend, kind, count, parameters), ["1/model.plan"])
        assert ("spanning-instances" in rules(repository)) is reported


PARAMETER = 'parameters { key: "%s" value { string_value: "1" } }\n'
ACCELERATOR = "optimization { execution_accelerators { %s } }\n"


@pytest.mark.parametrize(
    ("backend", "written", "text", "hint"),
    [
        ("onnxruntime", PARAMETER % "intra_op_num_threads", "'intra_op_num_threads'",
         "did you mean intra_op_thread_count?"),
        ("onnxruntime", PARAMETER % "INTER_OP_THREAD_COUNT", "'INTER_OP_THREAD_COUNT'",
         "did you mean inter_op_thread_count?"),
        ("pytorch", PARAMETER % "inter_op_thread_count", "'inter_op_thread_count'",
         "did you mean INTER_OP_THREAD_COUNT?"),
        ("openvino", PARAMETER % "NUM_STREAM", "'NUM_STREAM'", "did you mean NUM_STREAMS?"),
        ("tensorrt", PARAMETER % "anything", "'anything'", ""),
        ("fil", PARAMETER % "threads_per_tree", "'threads_per_tree' since release 25.09",
         "chunk_size took its place"),
        ("onnxruntime", ACCELERATOR % 'gpu_execution_accelerator { name: "tensorrt" parameters '
         '{ key: "precision" value: "FP16" } }', "'precision'", "did you mean precision_mode?"),
    ],
)  # fmt: skip
def test_unread_backend_parameter_is_reported_with_the_nearest_name(
    repository, backend, written, text, hint
):
    add(repository, "m", f'# of us\nbackend: "{backend}"\n{written}', [])
    (finding,) = [f for f in lint_repository(repository) if f.rule == "unread-parameter"]
    assert (finding.severity, finding.line) == (Severity.WARNING, 3)
    assert finding.message.endswith(f" reads no parameter {text}")
    assert finding.hint == hint


@pytest.mark.parametrize(
    ("backend", "written"),
    [
        ("onnxruntime", PARAMETER % "memory.enable_memory_arena_shrinkage"),
        ("onnxruntime", PARAMETER % "TRITON_BATCH_STRATEGY_PATH"),
        ("onnxruntime", ACCELERATOR % 'cpu_execution_accelerator { name: "openvino" }'),
        ("onnxruntime", ACCELERATOR % 'gpu_execution_accelerator { name: "cuda" parameters '
         '{ key: "use_ep_level_unified_stream" value: "1" } }'),
        ("dali", PARAMETER % "split_along_outer_axis"),
        ("of-my-own", PARAMETER % "anything"),
    ],
)  # fmt: skip
def test_a_parameter_that_its_backend_reads_or_may_read_is_no_finding(repository, backend, written):
    add(repository, "m", f'backend: "{backend}"\n{written}', [])
    assert "unread-parameter" not in rules(repository)


def value(key: str, text: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{text}" }} }}\n'


@pytest.mark.parametrize(
    ("backend", "key", "bad", "good"),
    [
        ("onnxruntime", "intra_op_thread_count", ("2x", "2.9"), ("2", "-1", "")),
        ("onnxruntime", "execution_mode", ("2",), ("0", "1")),
        (
            "onnxruntime",
            "memory.enable_memory_arena_shrinkage",
            ("nonsense", "1", "cpu"),
            ("cpu:0", "cpu:0;gpu:0"),
        ),
        ("openvino", "ENABLE_BATCH_PADDING", ("true", "1"), ("YES", "no")),
        ("onnxruntime", "cudnn_conv_algo_search", ("EXHAUSTIVE", "3"), ("0", "2")),
        ("tensorrt", "enable_multi_device", ("yes", "on"), ("TRUE", "1")),
        ("fil", "chunk_size", ("3", "64", "0"), ("1", "32")),
        ("fil", "layout", ("sparse", "Layered"), ("depth_first", "layered")),
        ("vllm", "REPORT_CUSTOM_METRICS", ("1", "yes"), ("True", "false")),
        ("of-my-own", "intra_op_thread_count", (), ("2x",)),
    ],
)
def test_value_that_the_backend_misreads_is_reported(repository, backend, key, bad, good):
    for text in bad:
        assert value_finding(repository, backend, key, text).severity is Severity.WARNING
    for text in good:
        add(repository, "m", f'backend: "{backend}"\n{value(key, text)}', [])
        assert rules(repository).isdisjoint({"parameter-value", "unread-parameter"})


@pytest.mark.parametrize(
    ("backend", "key", "bad", "good"),
    [
        ("onnxruntime", "intra_op_thread_count", ("many",), ()),
        ("onnxruntime", "execution_mode", ("ORT_PARALLEL",), ()),
        ("onnxruntime", "enable_mem_arena", ("2", "yes"), ("1", "true", "OFF")),
        ("openvino", "NUM_STREAMS", ("2x", "yes"), ("AUTO", "numa", "4")),
        ("pytorch", "INFERENCE_MODE", ("yes", "2"), ("True", "0", "on")),
        ("tensorflow", "MAX_SESSION_SHARE_COUNT", ("0", "two"), ("1", "4")),
        ("fil", "is_classifier", ("True", "1"), ("true", "false")),
        ("fil", "model_type", ("lgbm", "pickle"), ("lightgbm", "treelite_checkpoint")),
    ],
)
def test_value_that_the_backend_refuses_is_an_error(repository, backend, key, bad, good):
    for text in bad:
        assert value_finding(repository, backend, key, text).severity is Severity.ERROR
    for text in good:
        add(repository, "m", f'backend: "{backend}"\n{value(key, text)}', [])
        assert rules(repository).isdisjoint({"parameter-value", "unread-parameter"})


def value_finding(repository, backend, key, text):
    add(repository, "m", f'backend: "{backend}"\n{value(key, text)}', [])
    (finding,) = [f for f in lint_repository(repository) if f.rule == "parameter-value"]
    assert finding.line == 2
    assert f"{key} is '{text}', and " in finding.message
    return finding


@pytest.mark.parametrize(
    ("level", "reported"), [(-1, True), (0, False), (1, True), (2, True), (3, False), (7, False)]
)
def test_graph_level_that_turns_optimizations_off_is_reported(repository, level, reported):
    graph = f"optimization {{ graph {{ level: {level} }} }}"
    add(repository, "m", f'backend: "onnxruntime" {graph}', [])
    assert ("graph-level" in rules(repository)) is reported
    add(repository, "m", f'backend: "python" {graph}')
    assert "graph-level" not in rules(repository)


#: With each of these tritonserver 2.51 let requests wait beside an idle instance.
@pytest.mark.parametrize(
    "policy",
    [
        "default_queue_policy { default_timeout_microseconds: 60000000 }",
        "default_queue_policy { allow_timeout_override: true default_timeout_microseconds: 9 }",
        "default_queue_policy { max_queue_size: 100 }",
        "priority_levels: 2 default_priority_level: 1",
    ],
)
@pytest.mark.parametrize("size", [1, 8])
def test_queue_policy_is_reported_with_its_cost(repository, policy, size):
    batched = f'backend: "python" max_batch_size: {size} dynamic_batching {{ %s }}'
    add(repository, "m", batched % policy)
    (finding,) = [f for f in lint_repository(repository) if f.rule == "queue-policy-idle"]
    assert finding.severity is Severity.NOTE
    assert "up to 0.5 s beside an idle instance" in finding.message
    for none in ("", "default_queue_policy { }", "default_queue_policy { timeout_action: DELAY }"):
        add(repository, "m", batched % none)
        assert "queue-policy-idle" not in rules(repository)


#: Tried on a server of 2.73; what follows was accepted there.
@pytest.mark.parametrize("name", ["a#b", "a$b", "a&b", "a'b", "a(b)", "a;b", "a[b]", "a|b"])
def test_python_model_name_that_newer_servers_refuse_is_reported(repository, name):
    add(repository, name, 'backend: "python"\n')
    finding = only(repository, name)
    assert (finding.rule, finding.severity) == ("python-name", Severity.WARNING)
    add(repository, name, 'backend: "dali"\n', ["1/model.dali"])
    assert "python-name" not in rules(repository)


@pytest.mark.parametrize("name", ["a b", "a+b", "a,b", "a.b", "a:b", "a=b", "aéb"])
def test_a_name_that_no_server_refuses_is_no_finding(repository, name):
    add(repository, name, 'backend: "python"\n')
    assert rules(repository) == set()


def test_the_name_of_an_instance_group_counts_as_the_model_s(repository):
    add(repository, "m", PYTHON + 'instance_group { name: "on gpu #0" }\n')
    finding = only(repository)
    assert (finding.rule, finding.line) == ("python-name", 4)


def test_the_name_is_the_directory_s(repository):
    add(repository, "other", "# head\n" + PYTHON)
    finding = only(repository, "other")
    assert (finding.rule, finding.line) == ("name-mismatch", 2)


def test_findings_about_version_directories(repository):
    add(repository, "m", PYTHON, ["latest/model.py"])
    finding = only(repository)
    assert (finding.rule, finding.file) == ("version-directory", repository / "m")
    add(
        repository,
        "m",
        PYTHON + "version_policy { specific { versions: [ 1, 3 ] } }",
        ["1/model.py"],
    )
    assert "version 3" in only(repository).message


@pytest.mark.parametrize(
    ("config", "files", "hint"),
    [
        ('backend: "tensorrt"', ["1/model.engine"], "rename it to model.plan"),
        ('platform: "tensorrt_plan"', ["1/model.engine"], "default_model_filename"),
        ('backend: "fil"', ["1/model.pkl"], "Treelite"),
        ('backend: "onnxruntime"', ["1/bert.onnx", "1/x.txt"], "rename bert.onnx to model.onnx"),
        ('backend: "tensorrt"', ["1/dla.plan"], 'write default_model_filename: "dla.plan"'),
        ('backend: "python" default_model_filename: "a.py"', ["1/model.py"], "model.py to a.py"),
        ('backend: "onnxruntime"', ["1/a.onnx", "1/b.onnx"], "it holds a.onnx, b.onnx"),
        ('platform: "onnxruntime_onnx"', ["1/model.py"], "model.py, which is for backend: python"),
    ],
)
def test_the_file_a_backend_looks_for(repository, config, files, hint):
    add(repository, "m", config, files)
    finding = only(repository)
    assert (finding.rule, finding.file) == ("model-file", repository / "m" / "1")
    assert hint in finding.hint


@pytest.mark.parametrize(
    ("config", "file"),
    [
        ('backend: "tensorrt"', "1/model.plan"),
        ('backend: "tensorrt" default_model_filename: "a.engine"', "1/a.engine"),
        ('backend: "fil"', "1/xgboost.json"),
        ('backend: "some_backend_of_ours"', "1/whatever"),
        ("", "1/model.onnx"),
    ],
)
def test_files_that_are_right(repository, config, file):
    add(repository, "m", config, [file])
    assert lint_repository(repository) == []


def published(repository):
    """The repository of a published guide, as far as it gives one."""
    add(repository, "bert-onnx", case("published/bert-onnx"), ["1/model.onnx", "2/model.onnx"])
    code = (CASES / "published" / "tokenizer_model.py.txt").read_text(encoding="utf-8")
    add(repository, "tokenizer", case("published/tokenizer"), source=code)
    add(repository, "classifier", "", ["1/model.plan"])
    add(repository, "nlp-ensemble", case("published/nlp-ensemble"), ["1/.gitkeep"])


def test_findings_in_the_published_repository(repository):
    published(repository)
    findings = lint_repository(repository)
    errors = [
        (f.file.parent.name, f.line, f.rule) for f in findings if f.severity is Severity.ERROR
    ]
    assert errors == [
        ("nlp-ensemble", 46, "ensemble-step"),
        ("nlp-ensemble", 64, "ensemble-step-model"),
    ]
    notes = {(f.file.name, f.rule) for f in findings if f.severity is Severity.NOTE}
    assert notes == {
        ("config.pbtxt", "preferred-sizes-set"),
        ("model.py", "per-request-loop"),
    }


def test_the_shipped_repository_has_no_errors():
    shipped = Path(__file__).parents[3] / "model_repository"
    findings = lint_repository(shipped)
    assert {f.file.name for f in findings if f.severity is Severity.NOTE} == {"model.py"}
    assert [f for f in findings if f.severity is Severity.ERROR] == []


def test_one_model_is_linted_against_all(repository):
    published(repository)
    assert {f.file.parent.name for f in lint_repository(repository, "nlp-ensemble")} == {
        "nlp-ensemble"
    }


def test_steps_whose_model_does_not_parse_are_left_to_that_model(repository):
    published(repository)
    add(repository, "bert-onnx", "nonsense: 1", ["1/model.onnx"])
    assert rules(repository, "nlp-ensemble") == {"ensemble-step-model"}
    assert rules(repository, "bert-onnx") == {"syntax"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bert-dynamic", {"stateless-sequences", "batch-in-dims"}),
        ("multi-instance", {"mixed-kinds"}),
    ],
)
def test_findings_in_published_fragments(repository, name, expected):
    add(repository, name, case(f"published/{name}"), ["1/model.onnx"])
    assert rules(repository) == expected


@pytest.mark.parametrize(("version", "fits"), [("-1", True), ("2", True), ("7", False)])
def test_steps_name_a_version_that_exists(repository, version, fits):
    published(repository)
    config = case("published/nlp-ensemble").replace("-1", version)
    add(repository, "nlp-ensemble", config, ["1/.gitkeep"])
    for name in ("tokenizer", "bert-onnx"):
        (repository / name / "2").mkdir(exist_ok=True)
    messages = [f.message for f in lint_repository(repository, "nlp-ensemble")]
    assert any(version in message for message in messages) is not fits


def test_a_byte_order_mark_in_model_py_is_no_mistake(repository):
    add(repository, "m", PYTHON, source=f"\ufeff{MODEL_PY}")
    assert faults_of(repository, "m") == []


def test_impossible_file_name_is_reported_as_missing(repository):
    add(repository, "m", f'backend: "python" default_model_filename: "{"x" * 5000}.py"')
    assert [f.rule for f in faults_of(repository, "m")] == ["model-file"]


IO = """
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""


@pytest.mark.parametrize(
    ("config", "hidden"),
    [
        ('backend: "onnxruntime"', True),
        ('platform: "onnxruntime_onnx"', True),
        ('backend: "onnxruntime"' + IO, False),
        ('platform: "tensorrt_plan"' + IO, True),
        ('backend: "tensorrt" dynamic_batching { }' + IO, False),
    ],
)
def test_a_batcher_is_hidden_only_where_the_backend_completes_the_config(
    repository, config, hidden
):
    add(repository, "m", "max_batch_size: 8 " + config, ["1/model.onnx", "1/model.plan"])
    assert ("hidden-batcher" in rules(repository)) == hidden
    hints = [f.hint for f in lint_repository(repository) if f.rule == "hidden-batcher"]
    refused = [h for h in hints if "--disable-auto-complete-config" in h and "onnx" in config]
    assert not refused, "then an ONNX model without inputs or outputs does not load"


def test_tensors_that_the_code_of_the_model_completes_are_no_mistake(repository):
    config = 'backend: "python" max_batch_size: 8 input [ { name: "x" } ]'
    add(repository, "m", config, ["1/model.py"])
    assert "tensor" in rules(repository)
    code = repository / "m" / "1" / "model.py"
    code.write_text("class TritonPythonModel:\n    def auto_complete_config(c):\n        pass\n")
    assert "tensor" not in rules(repository)


def test_an_ensemble_that_leads_back_to_itself(repository):
    for name, called in (("one", "two"), ("two", "one"), ("own", "own")):
        config = (
            'platform: "ensemble" max_batch_size: 8 '
            'input { name: "x" data_type: TYPE_FP32 dims: 1 } '
            'output { name: "y" data_type: TYPE_FP32 dims: 1 } '
            f"ensemble_scheduling {{ {step(called, 'x', 'y')} }}"
        )
        add(repository, name, config, ["1/.gitkeep"])
    rules_ = {f.file.parent.name: f.rule for f in lint_repository(repository)}
    assert rules_ == dict.fromkeys(("one", "two", "own"), "ensemble-cycle")


@pytest.mark.parametrize(
    ("step", "severity", "said"),
    [
        (
            "model_transaction_policy { decoupled: true }",
            Severity.ERROR,
            "a decoupled step such as",
        ),
        ("sequence_batching { }", Severity.WARNING, "never reaches two, which then"),
        ("response_cache { enable: true }", None, ""),
    ],
)
def test_a_cache_on_an_ensemble_over_a_step_that_cannot_be_passed_over(
    repository, step, severity, said
):
    """Also where the step is one of an ensemble in between."""
    inner = ENSEMBLE.replace('"e"', '"inner"')
    outer = ENSEMBLE.replace('"two"', '"inner"')
    outer = outer.replace('key: "x" value: "middle"', 'key: "in" value: "middle"')
    outer = outer.replace('key: "y" value: "out"', 'key: "out" value: "out"')
    cached = outer + "response_cache { enable: true }\n"
    add(repository, "inner", inner, ["1/.gitkeep"])
    add(repository, "one", MODEL)
    add(repository, "two", MODEL.replace("one", "two") + step)
    add(repository, "e", outer, ["1/.gitkeep"])
    assert lint_repository(repository, "e") == []
    add(repository, "e", cached, ["1/.gitkeep"])
    findings = lint_repository(repository, "e", ignore=["cache-flag"])
    assert [(f.rule, f.severity) for f in findings] == (
        [("response-cache", severity)] if said else []
    )
    line = cached.split("\n").index("response_cache { enable: true }") + 1
    assert all(said in f.message and f.line == line for f in findings)


@pytest.mark.parametrize(
    ("policy", "reported"),
    [("max_queue_size: 8", True), ("default_timeout_microseconds: 9000", False)],
)
def test_step_of_an_ensemble_whose_queue_may_be_full_is_reported(repository, policy, reported):
    queue = f"dynamic_batching {{ default_queue_policy {{ {policy} }} }}\n"
    add(repository, "one", MODEL)
    add(repository, "two", MODEL.replace("one", "two") + queue)
    add(repository, "e", ENSEMBLE, ["1/.gitkeep"])
    findings = lint_repository(repository, "e")
    warnings = [("full-queue-in-step", Severity.WARNING)] if reported else []
    assert [(f.rule, f.severity) for f in findings] == warnings
    for finding in findings:
        assert '"two"' in ENSEMBLE.split("\n")[finding.line - 1]


def test_call_of_a_missing_model_is_reported_with_its_line(repository):
    code = MODEL_PY + "        pb_utils.InferenceRequest(model_name='brt', inputs=[])\n"
    add(repository, "m", PYTHON, source=code)
    add(repository, "bert", PYTHON.replace('"m"', '"bert"'))
    finding = only(repository)
    assert (finding.rule, finding.severity, finding.line) == ("called-model", Severity.WARNING, 5)
    (repository / "m" / "1" / "model.py").write_text(code.replace("'brt'", "'bert'"))
    assert lint_repository(repository) == []


#: What a call may be whose name a run makes: each model that the code or a parameter names.
ALL = ["finder", "reader", "scorer", "speaker"]
ASKING = """
FINDER, OTHER = "finder", None
SPEAKER: str = "speaker"
TABLE = {"text": "finder", "picture": "reader"}

class TritonPythonModel:
    reader = "reader"
    end = "der"

    def initialize(self, args):
        given = json.loads(args["model_config"])["parameters"]
        self.scorer = given["scorer"]["string_value"]
        self.twice = "finder"
        self.twice = self.scorer

    def execute(self, requests, chosen=None):
        %s
"""


@pytest.mark.parametrize(
    ("statement", "calls", "unnamed"),
    [
        ('Request(model_name="finder")', ["finder"], False),
        ("Request(model_name=SPEAKER)", ["speaker"], False),
        ("Request(model_name=self.reader)", ["reader"], False),
        ("Request(model_name=self.scorer)", ["scorer"], False),
        (
            "for name in (SPEAKER, self.scorer): Request(model_name=name)",
            ["speaker", "scorer"],
            False,
        ),
        ("[Request(model_name=n) for n in [SPEAKER]]", ["speaker"], False),
        ("Request(model_name=TABLE[chosen])", ["finder", "reader"], False),
        ("Request(model_name=TABLE.get(chosen, SPEAKER))", ["finder", "reader", "speaker"], False),
        ("Request(model_name=self.reader if chosen else SPEAKER)", ["reader", "speaker"], False),
        ("Request(model_name=NONE or 'finder')", ALL, True),
        ("Request(model_name='rea' + self.end)", ["reader"], False),
        ('Request(model_name=f"{chosen}ader")', ALL, True),
        ("Request(model_name=given.get('scorer', {}).get('string_value', 'x'))", ["scorer"], False),
        ("Request(model_name=given.get('y', {}).get('string_value', 'reader'))", ["reader"], False),
        ("for name in (SPEAKER, chosen): Request(model_name=name)", ALL, True),
        ("Request(model_name=FINDER)", ALL, True),
        ("Request(model_name=self.twice)", ALL, True),
        ("Request(model_name=chosen)", ALL, True),
        ("Request(**self.asked)", ALL, True),
        ("[Request(model_name=name) for name in []]", ALL, True),
        ("chosen()", [], False),
    ],
)
def test_names_of_called_models_are_read_or_their_lack_is_reported(
    repository, statement, calls, unnamed
):
    parameter = 'parameters { key: "%s" value { string_value: "%s" } }\n'
    config = PYTHON + parameter % ("scorer", "scorer") + parameter % ("x", "5")
    source = ASKING % statement.replace("Request", "pb_utils.InferenceRequest")
    add(repository, "m", config, source=source)
    for name in ("finder", "speaker", "reader", "scorer"):
        add(repository, name, PYTHON.replace('"m"', f'"{name}"'))
    findings = lint_repository(repository, "m")
    assert [(f.rule, f.line, f.severity) for f in findings] == (
        [("unnamed-call", 17, Severity.NOTE)] if unnamed else []
    )
    files = read_model(repository, "m")
    names = ["finder", "speaker", "reader", "scorer", "m"]
    called, places = called_models(files, files.config(), names)
    assert sorted(called) == sorted(calls)
    assert places == (("1/model.py:17",) if unnamed else ())


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("from package.calls import Calls as TritonPythonModel\n", ("finder",)),
        (MODEL_PY, ()),  # it is all here, and calls nothing
    ],
)
def test_models_in_the_parameters_are_called_by_a_class_that_lies_elsewhere(
    repository, source, calls
):
    add(repository, "m", PYTHON + value("first", "finder") + value("rest", "m"), source=source)
    files = read_model(repository, "m")
    assert called_models(files, files.config(), ["finder", "m"]) == (calls, ())


HELPER = """
class TritonPythonModel:
    def ask(self, name="reader", tensors=None, output="y"):
        return pb_utils.InferenceRequest(model_name=name, inputs=tensors).exec()

    def execute(self, requests):
        %s
"""


@pytest.mark.parametrize(
    ("statement", "calls", "unnamed"),
    [
        ("self.ask('finder', []); self.ask('reader', requests)", ["finder", "reader"], False),
        ("self.ask(tensors=[], name='finder')", ["finder"], False),
        ("self.ask('finder', []); self.ask(requests[0], [])", ["finder", "reader"], True),
        ("self.ask('finder'); self.ask(tensors=requests)", ["finder", "reader"], False),
        ("self.ask(*requests)", ["reader"], True),
        ("self.ask(**requests[0])", ["reader"], True),
        ("pass", ["reader"], True),
    ],
)
def test_names_given_to_a_method_that_calls_models_are_read(repository, statement, calls, unnamed):
    add(repository, "m", PYTHON, source=HELPER % statement)
    files = read_model(repository, "m")
    called, places = called_models(files, files.config(), ["finder", "reader"])
    assert list(called) == calls
    assert places == (("1/model.py:4",) if unnamed else ())


CHAIN = """
def compose(name, tensors):
    return pb_utils.InferenceRequest(model_name=name, inputs=tensors)

def run(name, tensors):
    def again(name): return compose("speaker", [])
    return compose(name, tensors).exec()

class TritonPythonModel:
    def execute(self, requests):
        run("finder", []), run("reader", [])
"""


def test_names_given_through_parameters_of_the_same_name_are_read(repository):
    add(repository, "m", PYTHON, source=CHAIN)
    files = read_model(repository, "m")
    called, places = called_models(files, files.config(), ["finder", "reader", "speaker"])
    assert (sorted(called), places) == (["finder", "reader", "speaker"], ())


def test_a_parameter_that_the_function_changes_is_made_at_run_time(repository):
    code = CHAIN.replace("    return pb", "    name = name.lower()\n    return pb")
    add(repository, "m", PYTHON, source=code)
    files = read_model(repository, "m")
    _, places = called_models(files, files.config(), ["finder", "reader"])
    assert places == ("1/model.py:4",)


def test_calls_in_a_file_that_the_model_imports_are_the_models(repository):
    model = "from .parts import Parts\nclass TritonPythonModel:\n    def execute(self, r): ...\n"
    add(repository, "m", PYTHON, source=model)
    version = repository / "m" / "1"
    (version / "parts.py").write_text("import deeper\nInferenceRequest(model_name='finder')\n")
    (version / "deeper.py").write_text("def ask(n):\n    InferenceRequest(model_name=n)\n")
    (version / "unused.py").write_text("InferenceRequest(model_name='reader')\n")
    files = read_model(repository, "m")
    called, places = called_models(files, files.config(), ["finder", "reader"])
    assert (called, places) == (("finder",), ("1/deeper.py:2",))
    findings = [(f.rule, f.file.name) for f in lint_repository(repository, "m")]
    assert findings == [("unnamed-call", "deeper.py"), ("called-model", "parts.py")]


@pytest.mark.parametrize("module", ["x" * 300, ".".join("x" * 2500)])
def test_module_whose_path_is_too_long_is_no_file_of_the_model(repository, module):
    add(repository, "m", PYTHON)
    (repository / "m" / "1" / "model.py").write_text(f"import {module}\n{MODEL_PY}")
    assert lint_repository(repository) == []


def test_calls_in_a_package_that_the_model_imports_are_the_models(repository):
    model = "from lib.steps import Steps\nclass TritonPythonModel:\n    def execute(self, r): ...\n"
    add(repository, "m", PYTHON, source=model)
    library = repository / "m" / "1" / "lib"
    library.mkdir()
    (library / "__init__.py").write_text("")
    (library / "steps.py").write_text("from . import base\nfrom lib.more import *\n")
    (library / "base.py").write_text("InferenceRequest(model_name='finder')\n")
    (library / "more.py").write_text(
        "def ask(self, name='reader'):\n    InferenceRequest(model_name=self.name)\n"
    )
    files = read_model(repository, "m")
    called, places = called_models(files, files.config(), ["finder", "reader"])
    assert (sorted(called), places) == (["finder", "reader"], ("1/lib/more.py:2",))


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("self.prefix + 'finder'", ["plant.finder"]),
        ("f'{self.prefix}reader'", ["plant.reader"]),
        ("self.prefix + self.other", []),
    ],
)
def test_a_name_with_a_part_that_a_run_makes_is_searched_by_the_rest(repository, name, models):
    source = f"class TritonPythonModel:\n    def execute(self, r):\n        Request({name})\n"
    source = source.replace("Request(", "InferenceRequest(model_name=")
    add(repository, "m", PYTHON, source=source)
    files = read_model(repository, "m")
    called, places = called_models(files, files.config(), ["plant.finder", "plant.reader"])
    assert (list(called), places) == (models, ("1/model.py:3",))


@pytest.mark.parametrize(
    ("name", "reported"), [("'finder'", True), ("r", False), ("r + 'finder'", False)]
)
def test_errors_of_a_model_that_may_be_called_are_not_the_callers(repository, name, reported):
    source = "class TritonPythonModel:\n    def execute(self, r): Request(model_name=%s)\n"
    source = source.replace("Request", "InferenceRequest") + "OTHER = 'finder'\n"
    add(repository, "m", PYTHON, source=source % name)
    add(repository, "finder", PYTHON.replace('"m"', '"other"'))
    assert [f.rule for f in faults_of(repository, "m")] == ["name-mismatch"] * reported
    files = read_model(repository, "m")
    assert called_models(files, files.config(), ["finder"])[0] == ("finder",)


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["m.model", "n.model"], ["m.model"]), (["n.model", "o.model"], ["n.model", "o.model"])],
)
def test_a_name_that_ends_as_a_sibling_of_the_model_is_that_sibling(repository, names, expected):
    source = (
        "class TritonPythonModel:\n    def execute(self, r): Request(model_name=r + '.model')\n"
    )
    add(repository, "m", PYTHON, source=source.replace("Request", "InferenceRequest"))
    files = read_model(repository, "m")
    called, places = called_models(files, files.config(), names)
    assert (list(called), places) == (expected, ("1/model.py:2",))


def test_models_that_a_parameter_lists_are_called(repository):
    parameter = 'parameters { key: "steps" value { string_value: "finder:ids,reader:text" } }'
    source = "class TritonPythonModel:\n    def execute(self, r, name): Request(model_name=name)\n"
    add(repository, "m", PYTHON + parameter, source=source.replace("Request", "InferenceRequest"))
    files = read_model(repository, "m")
    called, _ = called_models(files, files.config(), ["reader", "finder", "other"])
    assert list(called) == ["finder", "reader"]


@pytest.mark.parametrize(
    "names",
    [
        "".join(f"a{i} = a{i + 1}\n" for i in range(3000)) + "a3000 = 'm'",
        f"a0 = ({', '.join(['1'] * 3000)})",
        "a0 = a1\na1 = a0",
        f"a0 = {' + '.join(['b'] * 300)}",
    ],
    ids=["chain", "many", "circle", "sum"],
)
def test_circular_names_are_reported_as_unresolved(repository, names):
    add(repository, "m", PYTHON, source=f"{MODEL_PY}\n{names}\nInferenceRequest(model_name=a0)\n")
    assert only(repository).rule == "unnamed-call"


METRICS = """model_metrics {
  metric_control [ { %s } ]
}
"""
FAMILY = 'metric_identifier { family: "nv_inference_first_response_histogram_ms" }'
BUCKETS = "histogram_options { buckets: [ 1, 2 ] }"


@pytest.mark.parametrize(
    ("control", "missing"),
    [
        (f"{FAMILY} {BUCKETS}", ""),
        (BUCKETS, "metric_identifier"),
        (f"metric_identifier {{ }} {BUCKETS}", "family"),
        (f'metric_identifier {{ family: "" }} {BUCKETS}', "family"),
        (FAMILY, "histogram_options"),
        (f"{FAMILY} histogram_options {{ buckets: [ ] }}", "buckets"),
    ],
)
def test_a_field_that_tritonclient_does_not_know_is_a_warning_and_the_rest_is_checked(
    repository, control, missing
):
    """One of 2.73 knows it; what is checked is the same."""
    add(repository, "m", PYTHON + METRICS % control + "instance_group { count: -1 }\n")
    by_rule = {f.rule: f for f in lint_repository(repository)}
    newer = by_rule.pop("newer-field", None)
    assert set(by_rule) == {"instance-count"} | ({"model-metrics"} if missing else set())
    assert by_rule["instance-count"].line == 7
    if missing:
        assert by_rule["model-metrics"].message.endswith(f" {missing}")
    if "model_metrics" in new_config().DESCRIPTOR.fields_by_name:
        assert newer is None
        assert read_model(repository, "m").config().HasField("model_metrics")
    else:
        assert (newer.line, newer.severity) == (4, Severity.WARNING)
        with pytest.raises(SpecError, match="no field 'model_metrics'"):  # nothing may lose it
            read_model(repository, "m").config()


def test_a_limit_of_an_ensemble_that_tritonclient_does_not_know_is_a_warning(repository):
    newer = ENSEMBLE.replace(
        "ensemble_scheduling {", "ensemble_scheduling { max_inflight_requests: 4"
    )
    add(repository, "one", MODEL)
    add(repository, "e", newer, ["1/.gitkeep"])
    messages = {f.rule: f.message for f in lint_repository(repository, "e")}
    known = new_config().ensemble_scheduling.DESCRIPTOR.fields_by_name
    newer = "the installed tritonclient does not know max_inflight_requests"
    assert messages.get("newer-field") == (None if "max_inflight_requests" in known else newer)
    assert "ensemble-step-model" in messages


def test_a_newer_field_in_the_wrong_place_is_a_mistake(repository):
    add(repository, "m", PYTHON + "instance_group { model_metrics { } }")
    assert only(repository).rule == "syntax"


@pytest.mark.parametrize(
    ("name", "config", "files", "expected"),
    [
        ("m", "", ["1/weights.bin"], "no-backend"),
        ("m.identity", "", ["1/weights.bin"], None),
        ("m", 'default_model_filename: "model.so"', ["1/model.so"], "no-backend"),
        ("m", 'default_model_filename: "model.onnx"', ["1/model.onnx"], None),
        ("m", "", ["1/model.plan"], None),
        ("m", 'backend: "mine"', ["1/x"], None),
        ("m", 'model_repository_agents { agents { name: "a" } }', ["1/x"], None),
    ],
)
def test_something_must_say_which_backend_loads_a_model(repository, name, config, files, expected):
    add(repository, name, config, files)
    errors = [f.rule for f in lint_repository(repository) if f.severity is Severity.ERROR]
    assert errors == ([expected] if expected else [])


def test_without_weights_a_missing_backend_is_a_note(repository):
    add(repository, "m", "max_batch_size: 4", [])
    assert (only(repository).rule, only(repository).severity) == ("no-backend", Severity.NOTE)


def test_directory_with_neither_config_nor_model_is_reported(repository):
    add(repository, "m", PYTHON)
    (repository / "empty").mkdir()
    finding = only(repository, "empty")
    assert (finding.rule, finding.severity) == ("no-backend", Severity.ERROR)
    assert finding.message == "this is no model: it has neither a config.pbtxt nor a version"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("config.pbtx", "rename it to config.pbtxt"),
        ("config.pbtxt.in", "make config.pbtxt of it"),
        ("config_template.pbtxt", "make config.pbtxt of it"),
        ("small_batch.pbtxt", "make config.pbtxt of it"),
        ("config.pbtxt.j2", "make config.pbtxt of it"),
    ],
)
def test_a_misspelt_config_is_an_error(repository, name, advice):
    add(repository, "m", PYTHON)
    (repository / "m" / "config.pbtxt").rename(repository / "m" / name)
    finding = only(repository)
    assert (finding.rule, finding.severity) == ("config-file", Severity.ERROR)
    assert advice in finding.hint
    (repository / "m" / "config.pbtxt").write_text(PYTHON)
    assert lint_repository(repository) == []


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("import tritonclient.grpc as client\n", 1),
        ("import json\nfrom tritonclient import http\n", 2),
        ("from tritonclient.http.aio import InferenceServerClient\n", 1),
        ("from tritonclient.utils import np_to_triton_dtype\n", 0),
        ('url = f"{base}/v2/models/{name}/generate"\n', 1),
        ('"""Its clients use /v2/models/m/infer."""\n', 0),
    ],
)
def test_a_call_over_the_network_is_noted(repository, code, line):
    add(repository, "m", PYTHON)
    (repository / "m" / "1" / "model.py").write_text(code + EXECUTE)
    lines = [f.line for f in lint_repository(repository) if f.rule == "network-call"]
    assert lines == [line] * bool(line)
    assert len(faults_of(repository, "m")) == bool(line)


def test_a_template_alone_is_reported_without_advice_on_a_config_that_is_not_there(repository):
    add(repository, "m", 'platform: "onnxruntime_onnx"', ["1/.gitkeep"])
    (repository / "m" / "config.pbtxt").rename(repository / "m" / "config.pbtxt.template")
    assert only(repository).rule == "config-file"


def test_configs_that_lie_in_no_model_are_named(repository):
    (repository / "detector.pbtxt").write_text(PYTHON)
    with pytest.raises(SpecError, match=r"Triton does not read detector\.pbtxt") as refused:
        lint_repository(repository)
    assert "make a directory for each model" in refused.value.hint
    (repository / "detector.pbtxt").unlink()
    (repository / "m" / "src").mkdir(parents=True)
    (repository / "m" / "config.pbtxt.jinja").write_text(PYTHON)
    with pytest.raises(SpecError, match=r"does not read m/config\.pbtxt\.jinja"):
        lint_repository(repository)


def test_repositories_some_levels_below_are_named(repository):
    for place in ("services/triton/models", "examples"):
        (repository / place).mkdir(parents=True)
        add(repository / place, "m", PYTHON)
    with pytest.raises(SpecError, match="; examples and services/triton/models hold models"):
        lint_repository(repository)


@pytest.mark.parametrize("inner", ["demo", "demo/models"])
def test_a_folder_of_models_beside_models_is_no_model(repository, inner):
    add(repository, "m", PYTHON)
    add(repository, "other", PYTHON.replace('"m"', '"other"'))
    (repository / inner).mkdir(parents=True)
    (repository / "other").rename(repository / inner / "other")
    finding = only(repository, "demo")
    assert (finding.rule, finding.severity) == ("no-backend", Severity.ERROR)
    assert finding.message == f"this is no model: models lie in {repository / inner}"
    assert f"tune lint {repository / inner}" in finding.hint


@pytest.mark.parametrize("others", [(), ("other",)])
def test_a_model_file_beside_its_config_is_to_be_moved_into_a_version(repository, others):
    for name in ("m", *others):
        add(repository, name, PYTHON.replace('"m"', f'"{name}"'))
    (repository / "m" / "1" / "model.py").rename(repository / "m" / "model.py")
    (repository / "m" / "1").rmdir()
    finding = only(repository)
    assert finding.rule == "version-directory"
    assert finding.hint == f"move model.py into {repository / 'm' / '1'}"
    assert lint_repository(repository, weights=False) == []


@pytest.mark.parametrize("name", ["0", "01", "v1"])
def test_a_version_that_triton_passes_over_is_named(repository, name):
    add(repository, "m", PYTHON)
    add(repository, "other", PYTHON.replace('"m"', '"other"'))
    (repository / "m" / "1").rename(repository / "m" / name)
    finding = only(repository)
    assert finding.rule == "version-directory"
    assert (f"Triton passes over {name}" in finding.message) is (name != "v1")


def test_config_in_a_version_is_not_read(repository):
    add(repository, "m", "", ["1/model.onnx", "1/config.pbtxt"])
    assert rules(repository, "m") == set()
    (repository / "m" / "config.pbtxt").unlink()
    finding = only(repository)
    assert (finding.rule, finding.severity) == ("config-file", Severity.ERROR)
    assert finding.file.parent.name == "1"


@pytest.mark.parametrize("batch", ["", "max_batch_size: 4"])
def test_dims_of_a_step_whose_code_may_set_the_batch_are_left_alone(repository, batch):
    completing = EXECUTE + COMPLETING
    add(repository, "e", ENSEMBLE, ["1/.gitkeep"])
    for name in ("one", "two"):
        config = MODEL.replace('"one"', f'"{name}"').replace("max_batch_size: 4", batch)
        add(repository, name, config, source=completing % "config.set_max_batch_size(4)")
    assert rules(repository, "e") == set()


@pytest.mark.parametrize(
    "code",
    [
        'config.add_input({"name": "x", "data_type": kind, "dims": shape()})',
        'config.add_input({"name": "x", **more})',
        'x = {"name": "x"}\n        x.update(more)\n        config.add_input(x)',
        "for x in inputs:\n            config.add_input(x)",
        "if small:\n            config.set_max_batch_size(4)",
        "if done:\n            return config\n        config.set_max_batch_size(4)",
        "config.set_max_batch_size(16)",
        'config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [4]})',
    ],
)
def test_uncertain_completion_by_the_code_is_not_reported(repository, code):
    add(repository, "m", COMPLETED, source=EXECUTE + COMPLETING % code)
    assert lint_repository(repository) == []


def test_configs_by_other_names_are_checked_too(repository):
    add(repository, "m", PYTHON, ("1/model.py", "configs/a100.pbtxt", "configs/sick.pbtxt"))
    (repository / "m" / "configs" / "a100.pbtxt").write_text(PYTHON)
    (repository / "m" / "configs" / "sick.pbtxt").write_text(PYTHON + "max_batch_sise: 4\n")
    finding = only(repository)
    assert (finding.file, finding.line, finding.rule) == (
        repository / "m" / "configs" / "sick.pbtxt",
        4,
        "syntax",
    )
    assert [f.rule for f in faults_of(repository, "m", "configs/sick.pbtxt")] == ["syntax"]
    assert faults_of(repository, "m") == []


def test_a_directory_of_configs_is_no_version(repository):
    """Such a checkout has no weights: what only they can tell is left out."""
    add(repository, "m", PYTHON, ())
    (repository / "m" / "configs").mkdir()
    (repository / "m" / "configs" / "a100.pbtxt").write_text(PYTHON)
    assert lint_repository(repository) == []


SCORER = """name: "scorer"
backend: "python"
max_batch_size: 0
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
model_warmup [
  { name: "a" batch_size: 256 %s },
  { name: "b" batch_size: 1 %s },
  { name: "c" batch_size: 1 %s },
  { name: "d" batch_size: 1 %s }
]
parameters { key: "other" value { string_value: "1" } }
parameters { key: "EXECUTION_ENV_PATH" value { string_value: "%s" } }
"""


def values(key="x", source="zero_data: true", data_type="TYPE_FP32"):
    given = f"data_type: {data_type} dims: [ 4 ] {source}"
    return f'inputs {{ key: "{key}" value {{ {given} }} }}'


def test_every_broken_warm_up_sample_and_an_absent_environment_are_errors_at_their_place(
    repository,
):
    seven, absent = 'input_data_file: "seven"', 'input_data_file: "absent"'
    samples = [values(), values("input"), values("x", seven), values("x", absent)]
    environment = "$$TRITON_MODEL_DIRECTORY/env.tar.gz"
    add(repository, "scorer", SCORER % (*samples, environment), ("1/model.py", "warmup/seven"))
    (repository / "scorer" / "warmup" / "seven").write_bytes(b"1234567")
    errors = lint_repository(repository)
    assert [(f.line, f.column, f.rule) for f in errors] == [
        (8, 15, "warmup"),
        (9, 3, "warmup"),
        (10, 36, "sample-file"),
        (11, 36, "sample-file"),
        (14, 12, "execution-env"),
    ]
    assert {f.severity for f in errors} == {Severity.ERROR}


def test_samples_and_an_environment_that_are_as_they_should_be_are_no_finding(repository):
    seen = [values(), values(source='input_data_file: "sixteen"'), values(), values()]
    text = SCORER % (*seen, "$$TRITON_MODEL_DIRECTORY/env")
    files = ("1/model.py", "warmup/sixteen", "env/bin")
    add(repository, "scorer", text.replace("256", "1"), files)
    (repository / "scorer" / "warmup" / "sixteen").write_bytes(bytes(16))
    assert lint_repository(repository) == []


@pytest.mark.parametrize(
    ("data", "has"),
    [
        (b"\2\0\0\0hi" * 4, ""),
        (b"\2\0\0\0hi" * 3, "the file has 3"),
        (b"\2\0\0\0hi" * 5, "the file has 5"),
        (b"hello\n", "the file has something else"),
    ],
)
def test_strings_of_a_sample_have_their_lengths_before_them(repository, data, has):
    tensor = values(source='input_data_file: "words"', data_type="TYPE_STRING")
    text = SCORER.replace("FP32", "STRING") % (tensor, tensor, tensor, tensor, "/")
    add(repository, "scorer", text.replace("256", "1"), ("1/model.py", "warmup/words"))
    (repository / "scorer" / "warmup" / "words").write_bytes(data)
    messages = {f.message for f in lint_repository(repository)}
    assert len(messages) == (4 if has else 0)
    assert all(has in message for message in messages)


@pytest.mark.parametrize("name", [r"a\000b", "a" * 300])
def test_a_file_name_that_no_file_can_have_hides_no_other_finding(repository, name):
    tensor = values(source=f'input_data_file: "{name}"')
    add(repository, "scorer", SCORER % (tensor, tensor, tensor, values("input"), "/"))
    assert {f.rule for f in lint_repository(repository)} == {"sample-file", "warmup"}


def test_a_file_of_samples_is_read_once(repository, monkeypatch):
    tensor = values(source='input_data_file: "sixteen"')
    add(repository, "scorer", SCORER % (tensor, tensor, tensor, tensor, "/"), ("warmup/sixteen",))
    read = []
    monkeypatch.setattr(
        "tuner.lint.named_files.read_regular", lambda path, _: read.append(path.name) or bytes(16)
    )
    lint_repository(repository)
    assert read == ["sixteen"]


def test_an_environment_outside_of_the_model_and_a_model_for_some_gpus_may_be_elsewhere(repository):
    more = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "/no/env" } }'
    add(repository, "m", PYTHON + more)
    plan = 'name: "p" backend: "tensorrt" cc_model_filenames { key: "7.5" value: "sm75.plan" }'
    add(repository, "p", plan, ("1/model.plan",))
    severities = {f.rule: f.severity for f in lint_repository(repository)}
    assert severities == {"execution-env": Severity.WARNING, "model-file": Severity.WARNING}


def test_of_many_inputs_that_keep_requests_apart_the_first_is_named_once(repository):
    sizes = {"a": 1, "b": -1, "c": -1}
    inputs = (f'input {{ name: "{n}" data_type: TYPE_FP32 dims: {d} }}' for n, d in sizes.items())
    add(repository, "m", PYTHON + "\n".join(["dynamic_batching { }", *inputs]))
    finding = only(repository)
    assert (finding.line, finding.severity) == (6, Severity.NOTE)
