from __future__ import annotations

import pytest
from builders.configs import config
from builders.ensemble_cases import ENSEMBLE, ENSEMBLE_MISTAKES, MODEL
from builders.messages_models import joins
from builders.rule_cases import DEADLY, DYNAMIC, IDLE, REFUSED

from tuner.lint.model_files import without_effect
from tuner.modelconfig.ensembles import (
    circle_mistakes,
    mistakes,
    mistakes_between,
    step_mistakes,
    tensor_mistakes,
)
from tuner.modelconfig.message import parse
from tuner.modelconfig.rules import Rule, violations


@pytest.mark.parametrize(("rule", "path", "bad", "good"), REFUSED + DEADLY)
def test_config_that_triton_refuses_breaks_a_rule(rule, path, bad, good):
    (violation,) = violations(config(bad))
    assert (violation.rule, violation.path) == (rule, path)
    assert violation.message
    assert violations(config(good)) == []


@pytest.mark.parametrize(("rule", "path", "bad", "good"), IDLE)
def test_setting_that_loads_and_does_nothing_is_reported(rule, path, bad, good):
    (violation,) = without_effect(config(bad))
    assert (violation.rule, violation.path) == (rule, path)
    assert violations(config(bad)) == []
    assert without_effect(config(good)) == []


def test_negative_max_batch_size_is_refused():
    (violation,) = violations(parse('backend: "python" max_batch_size: -1'))
    assert violation.rule is Rule.MAX_BATCH_SIZE
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
    (violation,) = violations(parse('backend: "openvino" instance_group { profile: "0" }'))
    assert violation.rule is Rule.INSTANCE_PROFILE


@pytest.mark.parametrize("named", ['backend: "pytorch"', 'platform: "pytorch_libtorch"'])
def test_pytorch_model_needs_complete_inputs_and_outputs(named):
    tensors = 'input { name: "x" dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: 4 }'
    assert [v.path for v in violations(parse(named))] == ["input", "output"]
    assert [v.path for v in violations(parse(f"{named} {tensors}"))] == ["input[0]"]
    assert violations(parse(f'{named} runtime: "model.py"')) == []


@pytest.mark.parametrize(
    ("named", "known"),
    [
        ('platform: "onnxruntime"', False),
        ('platform: "onnxruntime_onnx"', True),
        ('platform: "tensorrt_plan" backend: "onnxruntime"', False),
        ('platform: "any" backend: "mine"', True),
        ('platform: "any" default_model_filename: "model.py"', True),
    ],
)
def test_a_platform_is_one_that_triton_knows_for_the_backend(named, known):
    tensors = 'input { name: "x" data_type: TYPE_FP32 dims: 4 }'
    paths = [v.path for v in violations(parse(f"{named} {tensors}"))]
    assert paths == ([] if known else ["platform"])


def test_an_empty_reshape_may_be_right_where_the_backend_sets_the_batch():
    text = 'backend: "onnxruntime" input { name: "x" data_type: TYPE_FP32 dims: 1 reshape { } }'
    assert violations(parse(text)) == []
    assert violations(parse(text + text.partition(" ")[2].partition(" ")[2].replace("in", "out")))


def test_a_sound_ensemble_has_no_mistakes():
    ensemble = parse(ENSEMBLE)
    assert list(mistakes(ensemble)) == []
    assert violations(ensemble) == []
    models = {"one": parse(MODEL), "two": parse(MODEL)}
    assert list(mistakes_between(ensemble, models)) == []
    assert list(circle_mistakes("e", ensemble, models)) == []


def test_models_that_are_no_ensembles_are_not_judged():
    assert list(mistakes(parse(MODEL + "instance_group { }"))) == []


@pytest.mark.parametrize(
    ("old", "new", "path", "said"),
    ENSEMBLE_MISTAKES,
)
def test_each_mistake_is_reported(old, new, path, said):
    assert old in ENSEMBLE
    messages = list(mistakes(parse(ENSEMBLE.replace(old, new, 1))))
    assert any(where == path and said in message for where, message, _ in messages), messages
    assert {v.rule for v in violations(parse(ENSEMBLE.replace(old, new, 1)))} == {Rule.ENSEMBLE}


def test_an_ensemble_needs_steps():
    (message,) = mistakes(parse('platform: "ensemble" ensemble_scheduling { }'))
    assert "no step" in message[1]
    assert list(mistakes(parse('platform: "ensemble"')))


def test_models_without_batches_fit_ensembles_with_them():
    model = parse(MODEL.replace("max_batch_size: 4", ""))
    assert list(step_mistakes(parse(ENSEMBLE), 0, "one", model)) == []


def test_optional_inputs_need_no_mapping():
    model = parse(MODEL + 'input { name: "z" data_type: TYPE_FP32 dims: 4 optional: true }')
    assert list(step_mistakes(parse(ENSEMBLE), 0, "one", model)) == []


@pytest.mark.parametrize(
    ("dims", "batch", "count"),
    [
        ("5", 4, 2),
        ("[ 2, 2 ]", 4, 2),
        ("-1", 4, 0),
        ("5", 0, 2),
        ("[ 7, 4 ]", 0, 0),
        ("4", 0, 0),
    ],
)
def test_dims_between_steps_must_fit(dims, batch, count):
    text = MODEL.replace("dims: 4", f"dims: {dims}").replace("size: 4", f"size: {batch}")
    models = {"one": parse(MODEL), "two": parse(text)}
    assert len(list(tensor_mistakes(parse(ENSEMBLE), models))) == count


def test_dims_must_fit_where_nothing_batches():
    ensemble, one = (parse(text.replace("size: 4", "size: 0")) for text in (ENSEMBLE, MODEL))
    assert list(tensor_mistakes(ensemble, {"one": one, "two": one})) == []
    two = parse(MODEL.replace("size: 4", "size: 0").replace("dims: 4", "dims: 5"))
    assert len(list(tensor_mistakes(ensemble, {"one": one, "two": two}))) == 2


@pytest.mark.parametrize(
    ("steps", "decoupled", "where"),
    [
        (("a in p", "b in q", "c p,q out"), "ab", "ensemble_scheduling.step[2].input_map"),
        (("a in p", "c p,in out"), "a", "ensemble_scheduling.step[1].input_map"),
        (("a in p", "b in out"), "a", ""),
        (("a in p", "b p q", "c p,q out"), "a", ""),
        (("a in p", "b p q", "c p,q out"), "ab", "ensemble_scheduling.step[2].input_map"),
        (("a in p", "b in out"), "", ""),
        (("inner in p", "c p,in out"), "a", "ensemble_scheduling.step[1].input_map"),
    ],
)
def test_responses_of_a_decoupled_model_are_joined_with_no_other_tensor(steps, decoupled, where):
    paths = [path for path, message in joins(*steps, decoupled=decoupled) if "joins" in message]
    assert paths == ([where] if where else [])


@pytest.mark.parametrize(("batch", "fits"), [(4, True), (0, True), (None, False)])
def test_dims_of_a_model_whose_batch_the_server_sets_are_read_both_ways(batch, fits):
    """An ONNX model without outputs in its config; with both, the server sets nothing."""
    ensemble = parse(ENSEMBLE)
    ensemble.max_batch_size = batch or 0
    for tensor in (*ensemble.input, *ensemble.output):
        tensor.dims[:] = [4] if batch else [-1, 4]
    onnx = parse(MODEL.replace("python", "onnxruntime").replace("max_batch_size: 4", ""))
    if batch is not None:
        del onnx.output[:]
    assert (list(tensor_mistakes(ensemble, {"one": onnx})) == []) is fits


@pytest.mark.parametrize(
    ("backend", "kind", "refused"),
    [
        ("tensorrt", "CPU", True),
        ("tensorrt", "GPU", False),
        ("tensorrt", "MODEL", False),
        ("onnxruntime", "CPU", False),
    ],
)
def test_a_backend_for_gpus_alone_refuses_instances_elsewhere(
    backend: str, kind: str, refused: bool
) -> None:
    config = parse(f'backend: "{backend}" instance_group {{ kind: KIND_{kind} }}')
    paths = [v.path for v in violations(config) if v.rule is Rule.BACKEND]
    assert paths == ["instance_group[0].kind"] * refused


@pytest.mark.parametrize(
    ("platform", "instead"), [("custom", "libtriton_NAME.so"), ("caffe2_netdef", "ONNX")]
)
def test_a_platform_of_earlier_releases_is_refused_with_what_took_its_place(
    platform: str, instead: str
) -> None:
    (violation,) = violations(parse(f'platform: "{platform}"'))
    assert instead in violation.hint
