from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.candidates import fields_of, the_one, values_of
from builders.messages_spaces import ENSEMBLE, IO
from builders.serving import served_one
from builders.spaces import BATCHING, CACHE, DELAY, INSTANCES, PREFERRED

from tuner.errors import SpecError
from tuner.modelconfig.backends import is_completed
from tuner.modelconfig.base import Base
from tuner.modelconfig.keys import misread_values, unread_keys
from tuner.modelconfig.message import parse
from tuner.modelconfig.path import with_fields
from tuner.space.build import build_space
from tuner.space.draft import Given, draft_spec
from tuner.space.draft_instances import CudaUse, Machine
from tuner.space.draft_space import DraftedModel
from tuner.space.experts import EXPERTS
from tuner.space.space import Space
from tuner.spec.load import load_spec
from tuner.spec.model import Spec
from tuner.spec.paths import DYNAMIC_BATCHING, MAX_BATCH_SIZE, QUEUE_TIMEOUT

ROOT = Path(__file__).parents[3]


def drafted(
    tmp_path: Path, config: str, machine: Machine | None = None, slo: str = "p99_latency <= 100ms"
) -> tuple[str, Spec, Space]:
    message = parse(config)
    text = draft_spec(
        {"a model": DraftedModel(message)}, machine or Machine(cores=4), "../my models", (slo,)
    )
    file = tmp_path / "spec.yaml"
    file.write_text(text)
    spec = load_spec(file).spec
    return text, spec, build_space(spec, served_one(message, spec.name))


CASES = {
    "cpu": BATCHING + IO,
    "gpu": 'name: "m" max_batch_size: 64 instance_group [{kind: KIND_GPU count: 1}]' + IO,
    "no batching": 'name: "m" max_batch_size: 0' + IO,
    "batch of two": 'name: "m" max_batch_size: 2',
    "batch of three": 'name: "m" max_batch_size: 3',
    "two groups": 'name: "m" max_batch_size: 8 instance_group [{count: 1}, {count: 2}]',
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("machine", [Machine(1), Machine(64, gpus=2, gpu_memory_bytes=80 << 30)])
def test_a_draft_loads_and_has_something_to_search(
    tmp_path: Path, name: str, machine: Machine
) -> None:
    _, spec, space = drafted(tmp_path, CASES[name], machine)
    assert spec.name == "a model"
    assert space.size().count > 1


def test_a_draft_has_todays_number_of_instances(tmp_path: Path) -> None:
    config = 'name: "m" instance_group [{count: 3 kind: KIND_CPU}]' + IO
    _, _, space = drafted(tmp_path, config, Machine(cores=2))
    assert space.violations(space.current) == []
    assert list(next(p for p in space.parameters if p.path.endswith("count"))) == [1, 2, 3]


def test_bounds_come_from_the_model_and_the_machine(tmp_path: Path) -> None:
    _, _, space = drafted(tmp_path, CASES["cpu"], Machine(cores=6), "p99_latency <= 10ms")
    values = {p.path: p for p in space.parameters}
    assert set(values[INSTANCES]) == {1, 2, 3, 4, 5, 6}
    assert set(values["max_batch_size"]) == {4, 8, 16, 32}
    assert 5000 in values[DELAY]
    assert 5001 not in values[DELAY]


@pytest.mark.parametrize(
    ("slo", "longest", "remarks"),
    [("p99_latency <= 900ms", 10_000, 0), ("p99_latency <= 1s", 200_000, 1)],
)
def test_delays_of_batch_jobs_are_longer_than_those_of_interactive_work(
    slo: str, longest: int, remarks: int, tmp_path: Path
) -> None:
    text, _, space = drafted(tmp_path, CASES["cpu"], slo=slo)
    assert text.count("# batch work, by the SLO: up to 200 ms") == remarks
    (delay,) = (p for p in space.parameters if p.path == DELAY)
    assert longest in delay
    assert longest + 1 not in delay


def test_open_dimensions_get_a_shape_to_be_changed(tmp_path: Path) -> None:
    _, spec, _ = drafted(tmp_path, CASES["cpu"])
    assert the_one(spec.streams).inputs.model_dump()["shapes"] == {"x": (128, 8)}


def test_a_queue_policy_is_drafted_from_the_slo_and_is_in_every_batch_once_it_is_wanted(
    tmp_path: Path,
) -> None:
    text, _, space = drafted(tmp_path, BATCHING + IO, slo="p99_latency <= 3s")
    assert all("queue_policy" not in p.path for p in space.parameters)
    (line,) = [line for line in text.splitlines() if QUEUE_TIMEOUT in line]
    assert line == f"  # {QUEUE_TIMEOUT}: {{choice: [1500000]}}"

    (tmp_path / "spec.yaml").write_text(text.replace(line, line.replace("# ", "")))
    spec = load_spec(tmp_path / "spec.yaml").spec
    wanted = build_space(spec, served_one(parse(BATCHING + IO), spec.name))
    rng = random.Random(1)
    candidates = [candidate for _ in range(50) if (candidate := wanted.sample(rng))]
    batched = [fields for c in candidates if (fields := fields_of(c))[DYNAMIC_BATCHING]]
    assert {fields[QUEUE_TIMEOUT] for fields in batched} == {1_500_000}


@pytest.mark.parametrize(("slo", "proposed"), [("999ms", False), ("1s", True)])
def test_queue_timeout_is_proposed_only_where_the_slo_allows_what_it_costs(
    tmp_path: Path, slo: str, proposed: bool
) -> None:
    text, _, _ = drafted(tmp_path, BATCHING + IO, slo=f"p99_latency <= {slo}")
    assert (QUEUE_TIMEOUT in text) is proposed
    assert "0.5 s beside an idle instance" in text


def test_the_cache_is_only_advised_until_repeats_are_stated(tmp_path: Path) -> None:
    text, _, space = drafted(tmp_path, CASES["cpu"])
    assert f"# {CACHE}" in text
    assert CACHE not in space.paths


THREADS = "environment.OMP_NUM_THREADS"


def drafted_threads(config: str, cores: int = 8, **more: Any) -> str:
    open_one = DraftedModel(parse(config), threads=("a remark",), variables=("OMP_NUM_THREADS",))
    return draft_spec({"m": open_one, **more.pop("parts", {})}, Machine(cores), "models", **more)


@pytest.mark.parametrize(("cores", "counts"), [(1, [1]), (2, [1]), (4, [1, 2]), (64, [1, 2, 4])])
def test_threads_that_a_models_code_leaves_open_are_searched(cores: int, counts: list[int]) -> None:
    text = drafted_threads(BATCHING + IO, cores)
    assert yaml.safe_load(text)["space"][THREADS] == {"choice": ["unset", *counts]}


def test_no_variable_is_drafted_for_a_gpu_or_a_server_that_tune_does_not_start() -> None:
    gpu = 'backend: "python" instance_group [{kind: KIND_GPU count: 1}]' + IO
    remote = {"mode": "remote", "http": "a:1", "grpc": "a:2"}
    for text in (drafted_threads(gpu), drafted_threads(BATCHING + IO, server=remote)):
        assert THREADS not in yaml.safe_load(text)["space"]


def test_of_several_models_the_variable_is_the_servers(tmp_path: Path) -> None:
    other = DraftedModel(parse(BATCHING + IO))
    text = drafted_threads(BATCHING + IO, parts={"n": other})
    assert "# and under server.space:\n#   response_cache.size: " in text
    file = tmp_path / "spec.yaml"
    file.write_text(text)
    assert list(load_spec(file).spec.server.space) == [THREADS]


def test_open_dimensions_are_guessed_so_that_requests_stay_small(tmp_path: Path) -> None:
    io = 'input { name: "x" data_type: TYPE_FP32 dims: [ -1, -1, -1 ] }'
    _, spec, _ = drafted(tmp_path, f'name: "m" max_batch_size: 8 {io}')
    assert the_one(spec.streams).inputs.model_dump()["shapes"] == {"x": (32, 32, 32)}
    image = 'input { name: "x" data_type: TYPE_FP32 dims: [ 3, -1, -1 ] }'
    _, spec, _ = drafted(tmp_path, f'name: "m" max_batch_size: 8 {image}')
    assert the_one(spec.streams).inputs.model_dump()["shapes"] == {"x": (3, 128, 128)}


@pytest.mark.parametrize(
    ("config", "warned"),
    [
        ("max_batch_size: 8", True),
        ("max_batch_size: 8 dynamic_batching { }", True),
        ("max_batch_size: 0", False),
    ],
)
def test_a_guessed_length_says_that_it_batches_as_production_may_not(
    tmp_path: Path, config: str, warned: bool
) -> None:
    io = 'input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }'
    remark = "# one length for all: batches form here that do not in production"
    assert (remark in drafted(tmp_path, f'name: "m" {config} {io}')[0]) is warned
    ragged = io.replace("}", "allow_ragged_batch: true }")
    assert remark not in drafted(tmp_path, f'name: "m" {config} {ragged}')[0]


@pytest.mark.parametrize(
    "tensor",
    [
        'name: "text" data_type: TYPE_STRING dims: [ -1 ]',
        'name: "output_len" data_type: TYPE_INT32 dims: [ -1 ]',
        'name: "stop_words" data_type: TYPE_INT32 dims: [ 2, -1 ] optional: true',
    ],
)
def test_one_length_is_no_matter_where_a_request_has_one_or_none(
    tmp_path: Path, tensor: str
) -> None:
    ids = 'name: "ids" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true'
    config = f'name: "m" max_batch_size: 8 input [ {{ {ids} }}, {{ {tensor} }} ]'
    assert "one length for all" not in drafted(tmp_path, config)[0]


def test_open_dimensions_of_all_inputs_get_one_length(tmp_path: Path) -> None:
    inputs = (
        '{ name: "inputs_embeds" data_type: TYPE_FP16 dims: [ -1, 1536 ] }, '
        '{ name: "attention_mask" data_type: TYPE_INT64 dims: [ -1 ] }, '
        '{ name: "prompt" data_type: TYPE_STRING dims: [ -1 ] }'
    )
    text, *_ = drafted(tmp_path, f'name: "m" max_batch_size: 8 input [ {inputs} ]')
    shapes = yaml.safe_load(text)["workload"]["inputs"]["shapes"]
    assert shapes == {"inputs_embeds": [32, 1536], "attention_mask": [32], "prompt": [1]}


@pytest.mark.parametrize(
    ("size", "dims", "guess"),
    [
        (0, "-1, -1", [1, 128]),
        (0, "-1, -1, 384", [1, 128, 384]),
        (0, "-1, 3, -1, -1", [1, 3, 128, 128]),
        (0, "-1, 3, 640, 640", [1, 3, 640, 640]),
        (0, "-1, -1, 3", [128, 128, 3]),  # a picture, or text of a fixed width
        (0, "-1, 47", [128, 47]),  # rows, of which a request has any number
        (0, "-1", [128]),
        (8, "-1, -1", [128, 128]),
    ],
)
def test_a_first_open_dimension_is_the_batch_where_triton_forms_none(
    tmp_path: Path, size: int, dims: str, guess: list[int]
) -> None:
    io = f'input {{ name: "x" data_type: TYPE_INT64 dims: [ {dims} ] }}'
    text, *_ = drafted(tmp_path, f'name: "m" max_batch_size: {size} {io}')
    assert yaml.safe_load(text)["workload"]["inputs"]["shapes"] == {"x": guess}


def test_tokens_of_a_fixed_length_come_in_batches_of_any_size(tmp_path: Path) -> None:
    io = 'input { name: "input_ids" data_type: TYPE_INT32 dims: [ -1, 64 ] }'
    text, *_ = drafted(tmp_path, f'name: "m" {io}')
    assert yaml.safe_load(text)["workload"]["inputs"]["shapes"] == {"input_ids": [1, 64]}


@pytest.mark.parametrize(
    ("tensor", "dims", "guess"),
    [
        ('"x" data_type: TYPE_UINT8', "-1, -1, -1", [128, 128, 3]),
        ('"x" data_type: TYPE_UINT8', "-1, -1, -1, -1", [1, 128, 128, 3]),
        ('"image" data_type: TYPE_FP32', "-1, -1, -1", [3, 128, 128]),
        ('"x" data_type: TYPE_FP32', "-1, -1, -1", [1, 128, 128]),
    ],
)
def test_a_picture_of_any_size_has_three_channels(
    tmp_path: Path, tensor: str, dims: str, guess: list[int]
) -> None:
    io = f'name: "m" input {{ name: {tensor} dims: [ {dims} ] }}'
    (shape,) = yaml.safe_load(drafted(tmp_path, io)[0])["workload"]["inputs"]["shapes"].values()
    assert shape == guess


@pytest.mark.parametrize(
    "tensor",
    ['"mask_image" data_type: TYPE_FP32', '"pixels" data_type: TYPE_UINT8'],
)
def test_a_picture_has_no_batch_in_front_unless_it_has_four_dimensions(
    tmp_path: Path, tensor: str
) -> None:
    for dims, guess in (("-1, -1", [128, 128]), ("-1, 8, 8, 3", [1, 8, 8, 3])):
        io = f'name: "m" input {{ name: {tensor} dims: [ {dims} ] }}'
        (shape,) = yaml.safe_load(drafted(tmp_path, io)[0])["workload"]["inputs"]["shapes"].values()
        assert shape == guess


def test_input_of_an_ensemble_is_a_setting_where_its_step_says_so() -> None:
    step = (
        'step { model_name: "tokens" model_version: -1 '
        'input_map { key: "text" value: "INPUT_0" } '
        'input_map { key: "output_len" value: "INPUT_1" } '
        'output_map { key: "y" value: "y" } }'
    )
    inputs = (
        '{ name: "INPUT_0" data_type: TYPE_STRING dims: [ -1 ] }, '
        '{ name: "INPUT_1" data_type: TYPE_UINT32 dims: [ -1 ] }'
    )
    ensemble = f'platform: "ensemble" input [ {inputs} ] ensemble_scheduling {{ {step} }}'
    parts = {
        "e": DraftedModel(parse(ensemble)),
        "tokens": DraftedModel(parse(f'name: "tokens" backend: "python" input [ {inputs} ]')),
    }
    text = draft_spec(parts, Machine(4), "models")
    assert yaml.safe_load(text)["workload"]["inputs"]["shapes"] == {"INPUT_0": [1], "INPUT_1": [1]}
    assert "# random values for INPUT_1: if a setting" in text


def test_decoupled_model_that_takes_sequences_is_refused_with_what_to_change() -> None:
    config = "sequence_batching { } model_transaction_policy { decoupled: true }"
    with pytest.raises(SpecError, match="m takes sequences and is decoupled") as refused:
        draft_spec({"m": DraftedModel(parse(config))}, Machine(4), "models")
    assert "leave decoupled out of config.pbtxt" in refused.value.hint
    parts = {
        "m": DraftedModel(parse("sequence_batching { }"), calls=("n",)),
        "n": DraftedModel(parse("model_transaction_policy { decoupled: true }")),
    }
    with pytest.raises(SpecError, match="n is decoupled, and m takes sequences"):
        draft_spec(parts, Machine(4), "models")


def test_an_ensemble_is_drafted_with_a_space_for_each_of_its_steps() -> None:
    parts = {
        "m": DraftedModel(parse(ENSEMBLE)),
        "tokens": DraftedModel(parse('name: "tokens" max_batch_size: 0' + IO)),
        "bert": DraftedModel(parse('name: "bert" max_batch_size: 16' + IO), least_batch=8),
    }
    text = draft_spec(parts, Machine(cores=4), "models", ("p99_latency <= 10ms",))
    drafted = yaml.safe_load(text)
    assert drafted["model"] == "m"
    assert "space" not in drafted
    assert drafted["models"]["tokens"] == {"space": {INSTANCES: {"int": [1, 4]}}}
    bert = drafted["models"]["bert"]["space"]
    assert bert["max_batch_size"] == {"choice": [8, 16]}  # what the ensemble takes at the least
    assert bert[DELAY]["int"] == [50, 2500]  # the steps share what the SLO leaves
    assert list(drafted["models"]) == ["tokens", "bert"]
    assert "queue_policy" not in text  # a step that refuses requests wastes what others did


def test_a_model_that_calls_others_is_drafted_with_them() -> None:
    caller = DraftedModel(parse('name: "m" backend: "python"' + IO), calls=("bert",))
    parts = {"m": caller, "bert": DraftedModel(parse('name: "bert" max_batch_size: 16' + IO))}
    text = draft_spec(parts, Machine(cores=4), "models")
    models = yaml.safe_load(text)["models"]
    assert models["m"] == {"calls": ["bert"], "space": {INSTANCES: {"int": [1, 4]}}}
    assert INSTANCES in models["bert"]["space"]


@pytest.mark.parametrize("calls", [(), ("bert",)])
def test_a_draft_says_where_the_code_calls_models_that_it_does_not_name(
    calls: tuple[str, ...], tmp_path: Path
) -> None:
    caller = DraftedModel(
        parse('name: "m" backend: "python"' + IO), False, calls, ("1/model.py:7",)
    )
    parts = {"m": caller, **{n: DraftedModel(parse(f'name: "{n}"' + IO)) for n in calls}}
    target = tmp_path / "spec.yaml"
    target.write_text(draft_spec(parts, Machine(cores=4), "models"))
    remark = "# 1/model.py:7 calls models by names that are made at run time: list them all\n"
    assert remark in target.read_text()
    assert load_spec(target).spec.models["m"].calls == calls


def test_a_model_that_does_not_batch_gets_advice_and_no_batcher(tmp_path: Path) -> None:
    text, _, space = drafted(tmp_path, CASES["no batching"])
    assert "max_batch_size is 0" in text
    assert PREFERRED not in space.paths


def test_a_batcher_that_the_backend_turns_on_is_not_called_off() -> None:
    config = parse('backend: "onnxruntime" max_batch_size: 8')
    for completes, now in ((True, "the server turns it on by itself"), (False, "off in config")):
        text = draft_spec({"m": DraftedModel(config, completes)}, Machine(cores=4), "models")
        (line,) = (li for li in text.splitlines() if li.startswith("  dynamic_batching:"))
        assert now in line


def test_sizes_that_a_config_prefers_may_be_left_out() -> None:
    """Else no smaller max_batch_size can be tried."""
    preferring = "max_batch_size: 64 dynamic_batching { preferred_batch_size: [ 32, 64 ] }"
    config = parse(f'backend: "onnxruntime" {preferring}')
    text = draft_spec({"m": DraftedModel(config)}, Machine(cores=4), "models")
    assert "  dynamic_batching.preferred_batch_size: {subsets: [16, 32, 64, 128]" in text


def test_sizes_below_those_that_a_sequence_batcher_prefers_are_not_drafted() -> None:
    oldest = "sequence_batching { oldest { preferred_batch_size: 32 } }"
    config = parse(f'backend: "onnxruntime" max_batch_size: 64 {oldest}')
    text = draft_spec({"m": DraftedModel(config)}, Machine(cores=4), "models")
    assert "max_batch_size: {choice: [32, 64, 128]}" in text
    assert "# No smaller size: preferred_batch_size has 32." in text


def test_a_model_for_gpus_alone_is_drafted_for_one_whatever_is_here() -> None:
    config = parse('backend: "tensorrt" max_batch_size: 8')
    text = draft_spec({"m": DraftedModel(config)}, Machine(cores=2), "models")
    assert "instance_group.count: {int: [1, 4]}     # GPU" in text
    assert "tensorrt needs a GPU and none is here" in text


def test_an_accelerator_that_is_on_is_called_so() -> None:
    on = (
        'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }'
    )
    gpu = 'backend: "onnxruntime" instance_group { kind: KIND_GPU }'
    for config, remarked in ((gpu, False), (f"{gpu} {on}", True)):
        text = draft_spec({"m": DraftedModel(parse(config))}, Machine(4, gpus=1), "models")
        assert ("on in config.pbtxt; " in text) is remarked


def test_of_a_model_with_optional_inputs_alone_all_are_drafted_to_be_chosen_from(
    tmp_path: Path,
) -> None:
    image = '{ name: "image" data_type: TYPE_FP16 dims: [ -1, 3 ] optional: true }'
    video = '{ name: "video" data_type: TYPE_BOOL dims: 1 optional: true }'
    text, *_ = drafted(tmp_path, f"max_batch_size: 8 input [ {image}, {video} ]")
    assert "all inputs are optional: leave out those that your users do not send" in text
    assert yaml.safe_load(text)["workload"]["inputs"]["shapes"] == {"image": [128, 3], "video": [1]}


def test_random_values_are_said_to_be_no_sizes() -> None:
    size = '{ name: "size" data_type: TYPE_INT32 dims: 2 is_shape_tensor: true }'
    config = parse(f'backend: "tensorrt" max_batch_size: 8 input {size}')
    text = draft_spec({"m": DraftedModel(config)}, Machine(4, gpus=1), "models")
    assert "# size: sizes (is_shape_tensor), so random values end in errors:" in text


def test_variants_are_of_the_versions_that_the_config_serves() -> None:
    config = parse("max_batch_size: 8 version_policy { specific { versions: [ 2, 3 ] } }")
    part = DraftedModel(config, versions=(1, 2, 3))
    text = draft_spec({"m": part}, Machine(4), "models")
    assert "version_policy.specific.versions: {choice: [[2], [3]]}" in text


@pytest.mark.parametrize(
    "backend",
    ['backend: "onnxruntime"', 'backend: "fil"', 'platform: "tensorflow_graphdef"'],
)
def test_model_with_all_its_tensors_has_the_batch_that_is_written(backend: str) -> None:
    """ONNX Runtime's backend then completes nothing, FIL's never does, nor that of a GraphDef."""
    config = parse(f"{backend} max_batch_size: 0" + IO)
    part = DraftedModel(config, completes=is_completed(config))
    text = draft_spec({"m": part}, Machine(4), "models")
    assert "max_batch_size is 0: Triton sends requests one by one." in text
    assert "max_batch_size: {choice" not in text


@pytest.mark.parametrize(
    ("today", "drafted"),
    [("6", ["1", "2", "4", "6"]), ("2", ["1", "2", "4"])],  # 6: more than there are cores
)
def test_todays_value_of_a_parameter_is_among_the_drafted_ones(
    today: str, drafted: list[str]
) -> None:
    threads = "intra_op_thread_count"
    given = f'parameters {{ key: "{threads}" value {{ string_value: "{today}" }} }}'
    config = parse(f'backend: "onnxruntime" max_batch_size: 8 {given}' + IO)
    draft = yaml.safe_load(draft_spec({"m": DraftedModel(config)}, Machine(4), "models"))
    assert draft["space"][f"parameters.{threads}"] == {"choice": drafted}


def test_a_queue_policy_of_the_config_is_not_called_left_out() -> None:
    config = parse(
        "max_batch_size: 8 dynamic_batching { default_queue_policy { max_queue_size: 64 } }"
    )
    text = draft_spec({"m": DraftedModel(config)}, Machine(4), "models")
    assert "Queue timeouts, limits and priorities of config.pbtxt stay" in text
    assert "left out" not in text


def test_optional_texts_are_not_sent_and_so_not_remarked_on() -> None:
    text = 'name: "%s" data_type: TYPE_STRING dims: 1'
    config = f"input [ {{ {text % 'a'} }}, {{ {text % 'b'} optional: true }} ]"
    draft = draft_spec({"m": DraftedModel(parse(config))}, Machine(4), "models")
    assert "random strings for a: some models" in draft


def test_a_decoupled_model_is_drafted_with_an_slo_on_its_first_response(tmp_path: Path) -> None:
    config = BATCHING + IO + "model_transaction_policy { decoupled: true }"
    text = draft_spec({"m": DraftedModel(parse(config))}, Machine(4), "models")
    (tmp_path / "spec.yaml").write_text(text)
    spec = load_spec(tmp_path / "spec.yaml").spec
    assert [str(slo) for slo in spec.slo] == ["p99_first_response <= 200ms", "error_rate <= 0%"]
    assert "p99_last_response" in text
    assert "cache" not in text  # which no decoupled model can have


@pytest.mark.parametrize("backend", ["", "onnxruntime"])
@pytest.mark.parametrize("completed", [0, 8])
def test_a_model_whose_batch_size_the_server_completes_is_drafted_without_a_guess(
    tmp_path: Path, completed: int, backend: str
) -> None:
    message = parse(f'name: "m" backend: "{backend}"')
    text = draft_spec({"m": DraftedModel(message, completes=True)}, Machine(cores=4), "models")
    assert "max_batch_size is 0" not in text
    (tmp_path / "spec.yaml").write_text(text)
    spec = load_spec(tmp_path / "spec.yaml").spec
    before = build_space(spec, served_one(Base.of_file(message, completes=True), spec.name))
    assert any(DYNAMIC_BATCHING in fields_of(c) for c in before.enumerate())

    running = parse(f'name: "m" max_batch_size: {completed} instance_group {{ count: 1 }}')
    space = build_space(
        spec, served_one(Base.of_server(message, running, completes=True), spec.name)
    )
    batched = any(fields_of(c)[DYNAMIC_BATCHING] for c in space.enumerate())
    assert batched == (completed > 1)
    sizes = {fields_of(c).get(MAX_BATCH_SIZE) for c in space.enumerate()}
    assert sizes == ({4, 8, 16, 32} if batched and backend else {None})


@pytest.mark.parametrize(
    ("config", "off"),
    [(BATCHING + IO, True), ('name: "m" max_batch_size: 16 dynamic_batching { }' + IO, False)],
)
def test_more_instances_alone_can_win_for_a_model_that_does_not_batch(
    tmp_path: Path, config: str, off: bool
) -> None:
    _, _, space = drafted(tmp_path, config)
    assert (DYNAMIC_BATCHING in space.paths) is off
    alone = {INSTANCES: 2, "max_batch_size": 16, DYNAMIC_BATCHING: None, DELAY: 0}
    candidate = space.candidate(values_of({**alone, PREFERRED: None}, "a model"))
    assert space.contains(candidate)
    assert (fields_of(candidate)[DYNAMIC_BATCHING] is None) is off


@pytest.mark.parametrize("backend", EXPERTS)
def test_the_shipped_spec_of_a_backend_says_and_searches_what_its_draft_does(backend: str) -> None:
    text = (ROOT / "search_spaces" / f"{backend}.yaml").read_text()
    config = parse(f'backend: "{backend}" max_batch_size: 32' + IO)
    machine = Machine(cores=4, gpus=0 if backend in ("openvino", "python") else 1)
    drafted = yaml.safe_load(draft_spec({"m": DraftedModel(config)}, machine, "models"))
    assert drafted["space"].keys() == yaml.safe_load(text)["space"].keys()
    assert all(f"# {remark}\n" in text for remark in EXPERTS[backend].remarks)


#: What a draft offers, commented out, for few models.
OFFERED = re.compile(r"^  #   ((?:parameters|optimization|instance_group)\..*)$", re.MULTILINE)
PLACES = {"cpu": Machine(cores=4), "gpu": Machine(cores=4, gpus=1)}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("backend", EXPERTS)
def test_commented_fields_of_a_draft_can_be_searched_and_are_read_by_the_backend(
    tmp_path: Path, backend: str, place: str
) -> None:
    message = parse(f'backend: "{backend}" max_batch_size: 32' + IO)
    text = draft_spec({"m": DraftedModel(message)}, PLACES[place], "models")
    (tmp_path / "spec.yaml").write_text(OFFERED.sub(r"  \1", text))
    spec = load_spec(tmp_path / "spec.yaml").spec
    space = build_space(spec, served_one(message, "m"))
    drafted = yaml.safe_load(text)["space"]
    assert len(space.paths) == len(drafted) + len(OFFERED.findall(text))
    keyed = [p for p in space.parameters if p.path.startswith(("parameters", "optimization"))]
    for parameter, value in ((p, v) for p in keyed for v in p):
        config = with_fields(message, {parameter.path: value})
        assert [*unread_keys(config, backend), *misread_values(config, backend)] == []


def test_a_shipped_spec_offers_what_drafts_do() -> None:
    for backend in EXPERTS:
        shipped = (ROOT / "search_spaces" / f"{backend}.yaml").read_text()
        part = DraftedModel(parse(f'backend: "{backend}" max_batch_size: 32' + IO))
        drafts = [draft_spec({"m": part}, machine, "models") for machine in PLACES.values()]
        offered = {line for draft in drafts for line in OFFERED.findall(draft)}
        assert offered <= set(OFFERED.findall(shipped))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("backend", EXPERTS)
def test_no_comment_is_longer_than_100_columns(backend: str, place: str) -> None:
    part = DraftedModel(parse(f'backend: "{backend}" max_batch_size: 32' + IO.replace("4", "-1")),
                        unnamed=("1/model.py:7 " + "and others " * 20,))  # fmt: skip
    long = "a backend of the model is not there, " * 8
    left = (f"  flag: {long}", "x" * 120)
    given = Given("tune init m", ("p99_latency <= 40ms",), left=left)
    for more in ({"why": long}, {"given": given}):
        text = draft_spec({"m": part}, PLACES[place], "models", **more)  # type: ignore[arg-type]
        lines = [line for line in text.splitlines() if len(line) > 100 and "x" * 120 not in line]
        assert [line for line in lines if not OFFERED.match(line.replace("      #", "  #"))] == []
        assert yaml.safe_load(text)["models"]["m"]["space"]


@pytest.mark.parametrize(("place", "remarked"), [("cpu", True), ("gpu", False)])
def test_open_threads_of_a_model_are_remarked_on_for_a_cpu(place: str, remarked: bool) -> None:
    part = DraftedModel(parse('backend: "python"' + IO), threads=("1/model.py:2 leaves\n1 open",))
    text = draft_spec({"m": part}, PLACES[place], "models")
    assert ("  # 1/model.py:2 leaves" in text) is remarked
    assert "\n1 open" not in text


def test_an_onnx_model_on_a_cpu_is_drafted_with_its_threads_first(tmp_path: Path) -> None:
    text, _, _ = drafted(tmp_path, 'backend: "onnxruntime" max_batch_size: 8' + IO, Machine(2))
    path, values = next(iter(yaml.safe_load(text)["space"].items()))
    assert path == "parameters.intra_op_thread_count"
    assert values == {"choice": ["1", "2"]}


def test_a_draft_names_the_server_that_is_given() -> None:
    server = {"mode": "docker", "image": "tritonserver:26.09"}
    parts = {"m": DraftedModel(parse(BATCHING + IO))}
    text = draft_spec(parts, Machine(2), "models", server=server, why="here")
    assert yaml.safe_load(text)["server"] == server
    assert "     # here\n" in text


def test_every_slo_is_taken_over_and_one_is_on_a_latency() -> None:
    parts = {"m": DraftedModel(parse(BATCHING + IO))}
    slos = ("throughput >= 300/s", "p50_latency <= 5ms", "error_rate <= 1%")
    drafted = yaml.safe_load(draft_spec(parts, Machine(2), "models", slos))
    assert drafted["slo"] == [*slos]
    assert drafted["space"][DELAY]["int"] == [50, 2500]


@pytest.mark.parametrize(
    ("kind", "machine", "most", "said"),
    [
        ("CPU", Machine(8, memory_bytes=22 << 30), 1, "22 GiB are here: enough for 1."),
        ("CPU", Machine(8, memory_bytes=64 << 30), 4, "64 GiB are here: enough for 4."),
        ("CPU", Machine(8, memory_bytes=256 << 30), 8, ""),
        ("GPU", Machine(8, 1, 40 << 30, 900 << 30), 2, "40 GiB are here: enough for 2."),
        ("GPU", Machine(8, 1, 8 << 30, 900 << 30), 1, "8 GiB are here: enough for 0."),
        ("CPU", Machine(8), 8, ""),
    ],
)
def test_no_more_instances_are_drafted_than_copies_of_the_weights_fit(
    kind: str, machine: Machine, most: int, said: str
) -> None:
    config = parse(
        f'backend: "python" max_batch_size: 8 instance_group {{ kind: KIND_{kind} }}' + IO
    )
    text = draft_spec({"m": DraftedModel(config, weights_bytes=15 << 30)}, machine, "models")
    searched = {"int": [1, most]} if most > 1 else None  # a range of one value is refused
    assert yaml.safe_load(text)["space"].get(INSTANCES) == searched
    assert ("a copy of 15 GiB of files" in text) is bool(said)
    assert said in text


@pytest.mark.parametrize(
    ("step", "offered"),
    [
        ("max_batch_size: 8", True),
        ("max_batch_size: 8 sequence_batching { oldest { } }", False),
        ("max_batch_size: 8 model_transaction_policy { decoupled: true }", False),
    ],
)
def test_no_cache_is_offered_for_an_ensemble_over_a_step_that_cannot_be_cached(
    step: str, offered: bool
) -> None:
    parts = {
        "m": DraftedModel(parse(ENSEMBLE)),
        "tokens": DraftedModel(parse(f'name: "tokens" {step}' + IO)),
        "bert": DraftedModel(parse('name: "bert" max_batch_size: 16' + IO)),
    }
    assert ("response_cache" in draft_spec(parts, Machine(cores=4), "models")) is offered


def test_one_text_and_one_of_a_setting_are_guessed_where_a_request_may_carry_many() -> None:
    inputs = [
        *(('"prompt"', "STRING", "-1"), ('"pcm"', "FP32", "-1"), ('"table"', "STRING", "-1, 5")),
        *(('"WAV_LENS"', "INT32", "-1"), ('"numSteps"', "INT64", "-1"), ('"top_p"', "FP32", "-1")),
        *(('"SAMPLES"', "INT32", "-1"), ('"samples"', "INT16", "-1")),
        *(
            ('"stream"', "BOOL", "-1"),
            ('"ids"', "INT64", "-1"),
            ('"numerical"', "FP32", "-1"),
        ),
        ('"size"', "INT64", "-1, 2"),
    ]
    tensors = (f"{{ name: {n} data_type: TYPE_{t} dims: [ {d} ] }}" for n, t, d in inputs)
    config = parse(f"input [ {', '.join(tensors)} ]")
    shapes = yaml.safe_load(draft_spec({"m": DraftedModel(config)}, Machine(4), "models"))
    one = {name: [1] for name in ("prompt", "WAV_LENS", "numSteps", "top_p", "stream", "SAMPLES")}
    many = {name: [128] for name in ("pcm", "ids", "numerical", "samples")}
    expected = {**one, **many, "table": [1, 5], "size": [128, 2]}
    assert shapes["workload"]["inputs"]["shapes"] == expected


@pytest.mark.parametrize(
    ("name", "kind", "dims", "remarked"),
    [
        ("x", "INT32", "1", True),
        ("x", "UINT64", "1", True),
        ("x", "INT64", "-1", False),
        ("max_tokens", "INT64", "-1", True),
        ("NUMKEYS", "INT32", "-1", True),
        ("KEYS", "INT64", "-1", True),
        ("numerical", "INT64", "-1", False),
        ("max_tokens", "INT64", "-1, -1", False),
        ("x", "FP32", "1", False),
        ("x", "UINT8", "-1", True),
        ("x", "UINT8", "3, 224, 224", False),
    ],
)
def test_random_numbers_that_may_be_settings_or_files_are_remarked_on(
    name: str, kind: str, dims: str, remarked: bool
) -> None:
    config = parse(f'input {{ name: "{name}" data_type: TYPE_{kind} dims: [ {dims} ] }}')
    text = draft_spec({"m": DraftedModel(config)}, Machine(4), "models")
    assert (f"# random values for {name}: " in text) is remarked


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [
        (8, [2, 4, 8, 16]),
        (512, [128, 256, 512, 1024]),
        (1024, [256, 512, 1024]),
        (882352, [256, 1024, 882352]),
    ],
)
def test_no_batch_is_drafted_larger_than_requests_ever_wait(largest: int, sizes: list[int]) -> None:
    config = parse(f'backend: "python" max_batch_size: {largest}' + IO)
    draft = yaml.safe_load(draft_spec({"m": DraftedModel(config)}, Machine(4), "models"))
    assert draft["space"]["max_batch_size"] == {"choice": sizes}


GPUS = Machine(cores=4, gpus=2, gpu_memory_bytes=24 << 30)
GROUP = "max_batch_size: 8 instance_group [{ %s }]" + IO


def draft_of(config: str, machine: Machine = GPUS, **more: Any) -> str:
    return draft_spec({"m": DraftedModel(parse(config), **more)}, machine, "models")


def test_what_a_rate_limiter_needs_is_in_the_draft() -> None:
    resource = 'rate_limiter { resources { name: "gpu" count: 1 global: true } }'
    text = draft_of(GROUP % f"count: 1 {resource}")
    assert "  # rate_limiter does nothing here unless you write, under server:\n" in text
    assert "  #   args: [--rate-limit=execution_count]\n" in text
    assert "Then only as many instances run at once as its resources allow." in text
    assert "rate_limiter" not in draft_of(GROUP % "count: 1")
    assert "resources" not in draft_of(GROUP % "count: 1 rate_limiter { priority: 2 }")


def test_a_library_of_operators_is_named() -> None:
    text = draft_of('model_operations { op_library_filename: "/opt/ops.so" }' + IO)
    assert "The server loads /opt/ops.so with the model" in text


KIND = "#   instance_group.kind: {choice: [KIND_CPU, KIND_GPU]}"


@pytest.mark.parametrize(
    ("backend", "machine", "cuda", "offered"),
    [
        ("onnxruntime", GPUS, CudaUse.NONE, True),
        ("onnxruntime", Machine(cores=4), CudaUse.NONE, False),
        ("openvino", GPUS, CudaUse.NONE, False),
        ("python", GPUS, CudaUse.NONE, False),
        ("python", GPUS, CudaUse.BY_KIND, True),
        ("my_engine", GPUS, CudaUse.NONE, False),
    ],
)
def test_kind_cpu_beside_a_gpu_is_offered_as_a_choice_where_the_backend_has_both(
    backend: str, machine: Machine, cuda: CudaUse, offered: bool
) -> None:
    text = draft_of(f'backend: "{backend}" ' + GROUP % "kind: KIND_CPU", machine, cuda=cuda)
    assert (KIND in text) is offered
    assert "CPU, 4 cores here" in text


def test_the_offered_kinds_can_be_searched(tmp_path: Path) -> None:
    message = parse('backend: "onnxruntime" ' + GROUP % "kind: KIND_CPU count: 1")
    text = draft_spec({"m": DraftedModel(message)}, GPUS, "models")
    (tmp_path / "spec.yaml").write_text(text.replace(KIND, KIND.removeprefix("#   ")))
    spec = load_spec(tmp_path / "spec.yaml").spec
    paths = build_space(spec, served_one(message, "m")).paths
    assert {"instance_group.kind", INSTANCES} <= {*paths}


def test_code_that_takes_a_gpu_anyway_is_drafted_as_on_one() -> None:
    config = 'backend: "python" ' + GROUP % "kind: KIND_CPU count: 1"
    text = draft_of(config, cuda=CudaUse.ALWAYS, variables=("OMP_NUM_THREADS",))
    count = "instance_group.count: {int: [1, 4]}"
    assert f"{count}     # KIND_CPU, but model.py uses a GPU" in text
    assert "environment.OMP_NUM_THREADS" not in yaml.safe_load(text)["space"]
    without = draft_of(config, Machine(cores=4), cuda=CudaUse.ALWAYS)
    assert f"{count}     # CPU, 4 cores here" in without


@pytest.mark.parametrize(("weights", "most"), [(0, 4), (20 << 30, 2), (40 << 30, 1)])
def test_instances_of_kind_model_fit_into_all_gpus_together(weights: int, most: int) -> None:
    config = 'backend: "pytorch" ' + GROUP % "kind: KIND_MODEL count: 1"
    text = draft_of(config, weights_bytes=weights)
    searched = f"{INSTANCES}: {{int: [1, {most}]}}     # KIND_MODEL: the model chooses its devices"
    assert (searched in text) is (most > 1)
    assert (INSTANCES in yaml.safe_load(text)["space"]) is (most > 1)
    assert "Every instance takes the devices that the model chooses once more." in text


def test_a_draft_whose_files_fit_once_can_be_planned(tmp_path: Path) -> None:
    message = parse(BATCHING + IO)
    part = DraftedModel(message, weights_bytes=9 << 30)
    text = draft_spec({"m": part}, Machine(4, memory_bytes=10 << 30), "models")
    (tmp_path / "spec.yaml").write_text(text)
    spec = load_spec(tmp_path / "spec.yaml").spec
    assert INSTANCES not in build_space(spec, served_one(message, "m")).paths
    assert "enough for 1." in " ".join(text.replace("#", "").split())


@pytest.mark.parametrize(
    ("backend", "parameters", "searched"),
    [
        ("tensorrt", {"enable_multi_device": "true", "multi_device_gpus": "0,1"}, False),
        ("tensorrt", {"enable_multi_device": "false", "multi_device_gpus": "0,1"}, True),
        ("python", {"gpu_device_ids": "0,1;2,3"}, False),
        ("python", {"gpu_device_ids": "0"}, True),
        ("python", {"gpu_device_ids": "${gpu_device_ids}"}, True),
    ],
)
def test_instances_that_span_gpus_are_not_searched(
    backend: str, parameters: dict[str, str], searched: bool
) -> None:
    entries = "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
        for key, value in parameters.items()
    )
    text = draft_of(f'backend: "{backend}" {entries}' + GROUP % "kind: KIND_MODEL count: 1")
    assert (INSTANCES in yaml.safe_load(text)["space"]) is searched
    assert ("takes GPUs 0, 1" in text) is not searched
