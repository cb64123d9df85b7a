from __future__ import annotations

import pytest
from unit.modelconfig.configs import config
from unit.modelconfig.rule_cases import DEADLY, DYNAMIC, IDLE, REFUSED

from tuner.modelconfig.idle import without_effect
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
    (found,) = violations(parse('backend: "pytorch" instance_group { profile: "0" }'))
    assert found.rule is Rule.INSTANCE_PROFILE
