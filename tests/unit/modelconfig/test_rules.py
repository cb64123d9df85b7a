from __future__ import annotations

import pytest
from builders.configs import config
from builders.rule_cases import DEADLY, DYNAMIC, IDLE, REFUSED

from tuner.lint.model_files import without_effect
from tuner.modelconfig.message import parse
from tuner.modelconfig.rules import Rule, violations


@pytest.mark.parametrize(("rule", "path", "bad", "good"), REFUSED + DEADLY)
def test_what_triton_refuses(rule, path, bad, good):
    (found,) = violations(config(bad))
    assert (found.rule, found.path) == (rule, path)
    assert found.message
    assert violations(config(good)) == []


@pytest.mark.parametrize(("rule", "path", "bad", "good"), IDLE)
def test_what_loads_and_does_nothing(rule, path, bad, good):
    (found,) = without_effect(config(bad))
    assert (found.rule, found.path) == (rule, path)
    assert violations(config(bad)) == []
    assert without_effect(config(good)) == []


def test_negative_max_batch_size_is_refused():
    (found,) = violations(parse('backend: "python" max_batch_size: -1'))
    assert found.rule is Rule.MAX_BATCH_SIZE
    assert violations(parse('backend: "python"')) == []


def test_backends_that_read_the_model_may_complete_tensors_and_batch_size():
    text = 'backend: "%s" input { name: "x" } dynamic_batching { }'
    onnx, python = parse(text % "onnxruntime"), parse(text % "python")
    assert violations(onnx) == without_effect(onnx) == []
    assert [v.rule for v in violations(python)] == [Rule.TENSOR]
    assert [v.rule for v in without_effect(python)] == [Rule.BATCHER_WITHOUT_BATCHES]


def test_a_plain_config_breaks_nothing():
    text = DYNAMIC % "preferred_batch_size: 8 max_queue_delay_microseconds: 100"
    assert violations(config(text)) == without_effect(config(text)) == []


@pytest.mark.parametrize("backend", ["dali", "fastertransformer", "onnxruntime", ""])
def test_backends_that_complete_their_config_take_tensors_without_types(backend):
    assert violations(parse(f'backend: "{backend}" output {{ name: "y" }}')) == []


def test_a_profile_may_be_of_a_tensorrt_plan_that_names_no_backend():
    assert violations(parse('instance_group { profile: "0" }')) == []
    (found,) = violations(parse('backend: "openvino" instance_group { profile: "0" }'))
    assert found.rule is Rule.INSTANCE_PROFILE


@pytest.mark.parametrize("named", ['backend: "pytorch"', 'platform: "pytorch_libtorch"'])
def test_a_pytorch_model_needs_whole_inputs_and_outputs(named):
    tensors = 'input { name: "x" dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: 4 }'
    assert [v.message for v in violations(parse(named))] == [
        "a PyTorch model without inputs: its backend completes none",
        "a PyTorch model without outputs: its backend completes none",
    ]
    assert [v.message for v in violations(parse(f"{named} {tensors}"))] == [
        "input x has no data_type"
    ]
    assert violations(parse(f'{named} runtime: "model.py"')) == []


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ('platform: "onnxruntime"', "Triton knows no platform 'onnxruntime'"),
        ('platform: "onnxruntime_onnx"', ""),
        (
            'platform: "tensorrt_plan" backend: "onnxruntime"',
            "Triton knows no platform 'tensorrt_plan' of backend onnxruntime",
        ),
        ('platform: "any" backend: "mine"', ""),
        ('platform: "any" default_model_filename: "model.py"', ""),
    ],
)
def test_a_platform_is_one_that_triton_knows_for_the_backend(named, said):
    tensors = 'input { name: "x" data_type: TYPE_FP32 dims: 4 }'
    found = [(v.path, v.message) for v in violations(parse(f"{named} {tensors}"))]
    assert found == ([("platform", said)] if said else [])


def test_the_nearest_platform_and_the_values_of_a_parameter_are_told():
    (found,) = violations(parse('platform: "onnxruntime"'))
    assert found.hint == "did you mean onnxruntime_onnx?"
    key = "execution_context_allocation_strategy"
    text = f'backend: "tensorrt" parameters {{ key: "{key}" value {{ string_value: "ANY" }} }}'
    (found,) = violations(parse(text))
    assert found.message == f"{key} is 'ANY', and must be STATIC or ON_PROFILE_CHANGE"


def test_an_empty_reshape_may_be_right_where_the_backend_sets_the_batch():
    text = 'backend: "onnxruntime" input { name: "x" data_type: TYPE_FP32 dims: 1 reshape { } }'
    assert violations(parse(text)) == []
    assert violations(parse(text + text.partition(" ")[2].partition(" ")[2].replace("in", "out")))
