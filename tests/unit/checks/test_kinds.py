"""Kinds of mistakes that people bring, each in a repository as somebody has one."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from builders.model_files import write_model

from tuner.checks.table import sentences
from tuner.errors import SpecError
from tuner.lint.repository import lint_repository
from tuner.lint.rules import Severity as LintSeverity
from tuner.machine.host import Gpu
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


def notes(prepared: Job) -> list[str]:
    return sentences(prepared, FindingSeverity.NOTED, FindingSeverity.MINOR)


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
    prepared = job(tmp_path, ROWS % (8, "[4, 8, 16]"), m=BATCHED)
    assert prepared.space.size().count == 2
    assert any(
        "not tried: max_batch_size 4: requests have 8 rows" in note for note in notes(prepared)
    )


@pytest.mark.parametrize(
    ("kinds", "count", "words"),
    [
        ("[KIND_CPU, KIND_GPU, KIND_AUTO]", 2, "not tried"),
        ("[KIND_GPU]", 1, "configs with it fail"),
    ],
)
def test_instances_on_a_gpu_are_not_tried_where_none_is_seen(
    kinds: str, count: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.checks.machine.read_gpus", lambda _: ())
    spec = f"model: m\nspace: {{instance_group.kind: {{choice: {kinds}}}}}\n"
    prepared = job(tmp_path, spec, m=BATCHED)
    assert len([*prepared.space.parameters[0]]) == count
    place = "spec.yaml:4:9: space.instance_group.kind"
    assert any(f"{place}: KIND_GPU, and no GPU is seen: {words}" in n for n in notes(prepared))


def test_half_precision_is_refused_in_json_with_the_protocol_that_has_it(tmp_path: Path) -> None:
    space = "space: {instance_group.count: {int: [1, 2]}}\n"
    spec = f"model: m\nworkload: {{protocol: http-json}}\n{space}"
    assert job(tmp_path / "single", spec, m=BATCHED).spec.workload.protocol.over_http
    with pytest.raises(SpecError, match="x is FP16, which JSON does not have") as error:
        job(tmp_path, spec, m=BATCHED.replace("TYPE_FP32", "TYPE_FP16"))
    assert "spec.yaml:4:22: workload.protocol" in error.value.message
    assert "write http" in f"{error.value.message} {error.value.hint}"


IMAGE = "nvcr.io/nvidia/tritonserver"


@pytest.mark.parametrize(
    ("backend", "image", "lacking", "instead"),
    [
        ("tensorflow", f"{IMAGE}:26.09-py3", "up to release 25.02 only", f"{IMAGE}:25.02-py3"),
        ("tensorflow", f"{IMAGE}:25.02-py3", "", ""),
        ("onnxruntime", f"{IMAGE}:26.09-vllm-python-py3", "vllm-python-py3 have no", "26.09-py3"),
        ("onnxruntime", f"{IMAGE}:26.09-py3-igpu", "", ""),
        ("tensorflow", "registry.example/triton:26.09-py3", "", ""),
        ("my_engine", f"{IMAGE}:26.09-py3", "", ""),
    ],
)
def test_image_that_lacks_the_backend_is_doubted_with_one_that_has_it(
    backend: str, image: str, lacking: str, instead: str, tmp_path: Path
) -> None:
    spec = (
        f"model: m\nserver: {{mode: docker, image: '{image}'}}\n"
        "space: {instance_group.count: {int: [1, 2]}}\n"
    )
    prepared = job(tmp_path, spec, m=f'backend: "{backend}" max_batch_size: 8 {IO}')
    texts = [
        text for text in sentences(prepared, FindingSeverity.DOUBTED) if "NVIDIA's images" in text
    ]
    assert bool(texts) is bool(lacking)
    assert all("spec.yaml:4:" in text and lacking in text and instead in text for text in texts)


def test_image_is_not_judged_where_the_backends_come_from_elsewhere(tmp_path: Path) -> None:
    server = f"{{mode: docker, image: '{IMAGE}:26.09-py3', args: [--backend-directory=/b]}}"
    spec = f"model: m\nserver: {server}\nspace: {{instance_group.count: {{int: [1, 2]}}}}\n"
    prepared = job(tmp_path, spec, m=f'backend: "tensorflow" max_batch_size: 8 {IO}')
    assert not [t for t in sentences(prepared, FindingSeverity.DOUBTED) if "NVIDIA's images" in t]


SPANS = (
    'parameters { key: "enable_multi_device" value { string_value: "true" } } '
    'parameters { key: "multi_device_gpus" value { string_value: "0,2" } }'
)


@pytest.mark.parametrize(
    ("config", "server", "missing"),
    [
        ("instance_group [{ kind: KIND_GPU gpus: [ 0, 1 ] }]", "{}", ""),
        ("instance_group [{ kind: KIND_GPU gpus: [ 0, 2 ] }]", "{}", "instance_group[0].gpus"),
        (SPANS, "{}", "parameters[multi_device_gpus] has GPU 2, and the server sees 2"),
        (SPANS, "{gpus: [0]}", "parameters[multi_device_gpus] has GPU 2, and the server sees 1"),
        (SPANS, "{mode: remote, http: 'h:1', grpc: 'h:2'}", ""),
    ],
)
def test_listed_gpus_are_there(
    config: str, server: str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = tuple(Gpu(n, "GPU", f"GPU-{n}", 24 << 30, "580") for n in range(2))
    monkeypatch.setattr("tuner.checks.machine.read_gpus", lambda _: gpus)
    spec = f"model: m\nserver: {server}\nspace: {{max_batch_size: {{choice: [4, 8]}}}}\n"
    prepared = job(tmp_path, spec, m=f'backend: "tensorrt" max_batch_size: 8 {config} {IO}')
    doubts = [t for t in sentences(prepared, FindingSeverity.DOUBTED) if "the server sees" in t]
    assert bool(doubts) is bool(missing)
    assert all(missing in text and "config.pbtxt:1:" in text for text in doubts)


@pytest.mark.parametrize(
    ("built", "doubted"),
    [
        ({"pretrained_config": {"mapping": {"world_size": 4, "tp_size": 4}}}, True),
        ({"pretrained_config": {"mapping": {"world_size": 2}}}, False),
        ({"builder_config": {}}, False),
        ([], False),
    ],
)
def test_engine_that_spans_more_gpus_than_there_are_is_doubted(
    built: Any, doubted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = tuple(Gpu(n, "GPU", f"GPU-{n}", 24 << 30, "580") for n in range(2))
    monkeypatch.setattr("tuner.checks.machine.read_gpus", lambda _: gpus)
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "config.json").write_text(json.dumps(built))
    place = f'parameters {{ key: "engine_dir" value {{ string_value: "{tmp_path / "engine"}" }} }}'
    spec = "model: m\nspace: {max_batch_size: {choice: [4, 8]}}\n"
    prepared = job(tmp_path, spec, m=f'backend: "python" max_batch_size: 8 {place} {IO}')
    doubts = sentences(prepared, FindingSeverity.DOUBTED)
    said = [text for text in doubts if "its engine spans 4 GPUs, and the server sees 2" in text]
    assert bool(said) is doubted


def test_searched_instances_of_an_engine_on_several_gpus_are_noted(tmp_path: Path) -> None:
    spec = "model: m\nspace: {instance_group.count: {int: [1, 2]}}\n"
    prepared = job(tmp_path, spec, m=f'backend: "tensorrt" max_batch_size: 8 {SPANS} {IO}')
    assert any("each instance takes GPUs 0, 2 together" in note for note in notes(prepared))


VERSIONED = """streams:
  old: {model: m, share: 90%%, version: 1}
  new: {model: m, share: 10%%, version: 2}
models: {m: {space: {%s}}}
"""


def test_versions_that_are_not_served_are_refused_with_those_that_are(tmp_path: Path) -> None:
    space = "instance_group.count: {int: [1, 2]}"
    (tmp_path / "models" / "m" / "2").mkdir(parents=True)
    with pytest.raises(SpecError, match=r"streams\.old\.version: m serves 2, not 1") as error:
        job(tmp_path, VERSIONED % space, m=BATCHED)
    assert "new.version" not in error.value.message
    both = f"{BATCHED} version_policy {{ specific {{ versions: [1, 2] }} }}"
    (tmp_path / "models" / "m" / "config.pbtxt").write_text(both)
    assert prepare(Request(tmp_path / "spec.yaml")).spec.streams["old"].version == 1
    searched = f"{space}, 'version_policy.specific.versions': {{choice: [[1, 2]]}}"
    (tmp_path / "models" / "m" / "config.pbtxt").write_text(BATCHED)
    (tmp_path / "spec.yaml").write_text(HEAD + VERSIONED % searched)
    assert prepare(Request(tmp_path / "spec.yaml")).spec.streams["new"].version == 2


def test_searched_version_without_a_directory_is_refused(tmp_path: Path) -> None:
    space = "space: {version_policy.specific.versions: {choice: [[1], [1, 7]]}}\n"
    with pytest.raises(SpecError, match=r"versions: m has no version 7, only 1$") as error:
        job(tmp_path, f"model: m\n{space}", m=BATCHED)
    assert "put its directory into the repository" in error.value.hint


def test_request_that_fills_a_batch_is_noted(tmp_path: Path) -> None:
    space = "space: {dynamic_batching.max_queue_delay_microseconds: {choice: [0, 100]}}\n"
    prepared = job(tmp_path, f"model: m\nworkload: {{batch_size: 8}}\n{space}", m=BATCHED)
    assert any("a request fills a batch of m" in note for note in notes(prepared))
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


def test_type_that_only_the_server_knows_is_said_to_be_left_to_it(tmp_path: Path) -> None:
    tensors = 'input { name: "v" dims: [ 4 ] } output { name: "o" }'
    config = f'backend: "dali" max_batch_size: 4 {tensors}'
    texts = notes(job(tmp_path, "model: m\nspace: {max_batch_size: {choice: [2, 4]}}\n", m=config))
    assert any("v of a type left to the server [4]" in text for text in texts)


@pytest.mark.parametrize(
    ("output", "size"),
    [
        ("FP32 dims: [ 256, 288, 288 ]", "81 MiB"),
        ("FP16 dims: [ -1, 1048577 ]", "at least 2 MiB"),
        ("FP32 dims: [ 1000 ]", ""),
        ("STRING dims: [ 1 ]", ""),
    ],
)
def test_large_answer_is_noted_with_its_size(output: str, size: str, tmp_path: Path) -> None:
    tensors = (
        'input { name: "x" data_type: TYPE_FP32 dims: 4 } output { name: "y" data_type: TYPE_%s }'
    )
    config = f'backend: "python" max_batch_size: 4 {tensors % output}'
    texts = notes(job(tmp_path, "model: m\nspace: {max_batch_size: {choice: [2, 4]}}\n", m=config))
    said = [text for text in texts if "an answer carries" in text]
    assert [f"an answer carries {size}, most of it in y" in text for text in said] == [True] * bool(
        size
    )


def test_random_values_of_a_shape_tensor_are_noted_with_what_to_give(tmp_path: Path) -> None:
    size = 'input { name: "size" data_type: TYPE_INT32 dims: 2 is_shape_tensor: true }'
    config = f'backend: "tensorrt" max_batch_size: 8 {size} {IO}'
    texts = notes(job(tmp_path, "model: m\nspace: {max_batch_size: {choice: [4, 8]}}\n", m=config))
    assert any("workload.inputs: size is a shape tensor" in note for note in texts)


def test_batch_that_the_file_fixes_is_noted_and_not_searched(tmp_path: Path) -> None:
    config = f'backend: "onnxruntime" {IO}'.replace("[ 4 ]", "[ 1, 3, 8, 8 ]")
    config = config.replace("[ 1 ]", "[ 1, 1000 ]")
    (finding,) = linted(tmp_path, config, "model.onnx", rule="fixed-batch")
    assert finding.severity is LintSeverity.NOTE


def test_batch_of_one_is_noted_of_code_in_its_words_and_not_of_an_ensemble(tmp_path: Path) -> None:
    config = IO.replace("[ 4 ]", "[ 1, 4 ]").replace("[ 1 ]", "[ 1, 8 ]")
    (finding,) = linted(tmp_path, f'backend: "python" {config}', rule="fixed-batch")
    assert "export" not in finding.hint
    (tmp_path / "m" / "config.pbtxt").write_text(f'platform: "ensemble" {config}')
    assert "fixed-batch" not in {f.rule for f in lint_repository(tmp_path)}


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
    texts = notes(job(tmp_path, DOCKER % release, m=BATCHED))
    assert any("8 Python processes want 64 MiB" in note for note in texts) is noted


def test_copies_of_the_weights_that_do_not_fit_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sysconf", lambda _: 1 << 11)  # 4 MiB of memory
    prepared = job(tmp_path, "model: m\nspace: {instance_group.count: {int: [1, 6]}}\n", m=BATCHED)
    (tmp_path / "models" / "m" / "1" / "weights.bin").write_bytes(bytes(1 << 20))
    (note,) = [note for note in notes(prepared) if "own copy" in note]
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
    findings = linted(tmp_path, f"{config} {IO}")
    assert any(words in f"{f.message} {f.hint}" for f in findings), findings


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
    findings = linted(tmp_path, f'backend: "{backend}" {IO}', *files, rule="model-file")
    assert [missing in f.message for f in findings] == [True] * bool(missing)


def test_version_that_is_not_served_may_lack_its_file(tmp_path: Path) -> None:
    write_model(tmp_path / "m", f'backend: "python" {IO}', "class TritonPythonModel: ...\n")
    (tmp_path / "m" / "3").mkdir()
    (tmp_path / "m" / "3" / "model.py").touch()
    (tmp_path / "m" / "2").mkdir()
    findings = [f for f in lint_repository(tmp_path) if f.rule == "model-file"]
    assert [f.severity for f in findings] == [LintSeverity.NOTE]


def test_every_backend_has_its_source_and_the_images_are_those_that_have_it() -> None:
    assert all(row.source for row in BACKENDS.values())
    assert image_with(["python", "onnxruntime"]) == "nvcr.io/nvidia/tritonserver:26.09-py3"
    assert image_with(["vllm", "onnxruntime"]) is None
    assert image_with(["my_engine"]) is None


@pytest.mark.parametrize(
    ("code", "refused"),
    [("def auto_complete_config(config): ...\n", False), ("import this\n", True)],
)
def test_first_responses_may_be_bounded_where_the_code_may_make_a_model_decoupled(
    code: str, refused: bool, tmp_path: Path
) -> None:
    write_model(tmp_path / "models" / "m", BATCHED, code)
    spec = "model: m\nrepository: models\nslo: [p99_first_response <= 100ms]\n"
    (tmp_path / "spec.yaml").write_text(spec + "space: {instance_group.count: {int: [1, 2]}}\n")
    with pytest.raises(SpecError) if refused else nullcontext():
        prepare(Request(spec=tmp_path / "spec.yaml"))


def test_calls_that_a_run_may_not_answer_are_noted(tmp_path: Path) -> None:
    code = (
        "import tritonclient.grpc\n"
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        '        return [pb_utils.InferenceRequest(model_name="gone") for r in requests]\n'
    )
    write_model(tmp_path / "models" / "m", BATCHED, code)
    said = notes(job(tmp_path, "model: m\nspace: {instance_group.count: {int: [1, 2]}}\n"))
    (network,) = (note for note in said if "over the network" in note)
    assert "m/1/model.py:1:1" in network
    (missing,) = (note for note in said if "calls model 'gone', which is not in the re" in note)
    assert "m/1/model.py:4:" in missing


@pytest.mark.parametrize(("size", "noted"), [(0, False), (8, True)])
def test_a_batch_size_is_said_to_be_open_unless_the_code_sets_none(
    tmp_path: Path, size: int, noted: bool
) -> None:
    code = (
        "class TritonPythonModel:\n"
        "    @staticmethod\n"
        "    def auto_complete_config(config):\n"
        f"        config.set_max_batch_size({size})\n"
        "        return config\n"
        "    def execute(self, requests): ...\n"
    )
    write_model(tmp_path / "models" / "m", f'backend: "python" {IO}', code)
    said = notes(job(tmp_path, "model: m\nspace: {instance_group.count: {int: [1, 2]}}\n"))
    assert any("leaves max_batch_size to the server" in note for note in said) is noted
