from __future__ import annotations

import pytest

from tuner.errors import SpecError
from tuner.modelconfig.message import parse
from tuner.modelconfig.path import (
    canonical,
    check_value,
    get,
    in_order,
    set_field,
    with_fields,
)

CONFIG = """
max_batch_size: 8
instance_group [ { kind: KIND_GPU count: 2 gpus: [ 0, 1 ] }, { kind: KIND_CPU } ]
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  priority_queue_policy { key: 2 value { max_queue_size: 5 timeout_action: DELAY } }
}
parameters { key: "odd.key" value { string_value: "x" } }
parameters { key: "threads" value { string_value: "3" } }
metric_tags { key: "team" value: "a" }
optimization { }
"""


@pytest.fixture
def config():
    return parse(CONFIG)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("max_batch_size", 8),
        ("default_model_filename", ""),
        ("dynamic_batching", True),
        ("sequence_batching", None),
        ("sequence_batching.direct.minimum_slot_utilization", None),
        ("dynamic_batching.preferred_batch_size", (4, 8)),
        ("dynamic_batching.max_queue_delay_microseconds", 0),
        ("dynamic_batching.preserve_ordering", False),
        ("dynamic_batching.priority_queue_policy[2].max_queue_size", 5),
        ("dynamic_batching.priority_queue_policy[2].timeout_action", "DELAY"),
        ("dynamic_batching.priority_queue_policy[2]", True),
        ("dynamic_batching.priority_queue_policy[1].max_queue_size", None),
        ("instance_group[0].count", 2),
        ("instance_group[1].kind", "KIND_CPU"),
        ("instance_group[1].gpus", None),
        ("instance_group[kind=KIND_GPU].gpus", (0, 1)),
        ("instance_group[gpus=1].count", 2),
        ("instance_group[kind=KIND_GPU,gpus=0]", True),
        ("instance_group[kind=KIND_MODEL].count", None),
        ("parameters.threads", "3"),
        ('parameters["odd.key"]', "x"),
        ("parameters.none", None),
        ("metric_tags.team", "a"),
        ("optimization.cuda.graphs", None),
        ("model_warmup.count", None),
    ],
)
def test_get_reads_the_value_at_a_path(config, path, value):
    assert get(config, path) == value


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("instance_group.count", "2 elements of instance_group match"),
        ("instance_group[2].count", "has only 2 elements"),
    ],
)
def test_which_element_must_be_clear(config, path, said):
    with pytest.raises(SpecError, match=said):
        get(config, path)
    with pytest.raises(SpecError, match=said):
        set_field(config, path, 1)


@pytest.mark.parametrize(
    ("path", "said", "hint"),
    [
        ("", "not a path", "field.field"),
        ("a..b", "not a path", ""),
        ("max_batch_size.", "not a path", ""),
        ("instance_group[0", "not a path", ""),
        ("max_batchsize", "no field 'max_batchsize'", "did you mean max_batch_size?"),
        ("dynamic_batching.zzz", "no field 'zzz'", "preferred_batch_size"),
        ("max_batch_size.x", "max_batch_size is a whole number", ""),
        ("max_batch_size[0]", "which is a whole number", "lists of messages"),
        ("dynamic_batching[0].preserve_ordering", "which is a message", "lists of messages"),
        ("instance_group[kid=1].count", "selects nothing", "did you mean kind?"),
        ("instance_group[kind].count", "selects nothing", ""),
        ("instance_group[kind=KIND_GPUS].count", "not 'KIND_GPUS'", ""),
        ("instance_group[kind=KIND_GPU].kind", "sets the field that selects", "position"),
        ("parameters", "names the map", "parameters.KEY"),
        ("parameters.a.b", "no field 'b'", 'parameters["a.b"]'),
        ("dynamic_batching.priority_queue_policy[x]", "not a key", "whole number"),
        ("dynamic_batching.priority_queue_policy[-1]", "not a key", "0 or more"),
    ],
)
def test_wrong_paths_say_what_is_meant(path, said, hint):
    with pytest.raises(SpecError) as caught:
        canonical(path)
    assert said in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("max_batch_size", 2.5, "whole number"),
        ("max_batch_size", True, "whole number"),
        ("max_batch_size", 2**31, "whole number"),
        ("max_batch_size", "8", "whole number"),
        ("dynamic_batching.max_queue_delay_microseconds", -1, "0 or more"),
        ("dynamic_batching.preserve_ordering", 1, "boolean"),
        ("dynamic_batching.preferred_batch_size", 4, "list of whole numbers"),
        ("dynamic_batching.preferred_batch_size", (4, "8"), "list of whole numbers"),
        ("dynamic_batching", False, "message"),
        ("dynamic_batching", "off", "write off without quotes"),
        ("instance_group", 2, "message"),
        ("instance_group[0].kind", "KIND_GPUS", "not a value of kind"),
        ("instance_group[0].kind", 1, "KIND_AUTO"),
        ("backend", 3, "text"),
        ("parameters.a", (1,), "text"),
        ("sequence_batching.direct.minimum_slot_utilization", float("nan"), "number"),
    ],
)
def test_values_of_the_wrong_type_are_refused(config, path, value, said):
    with pytest.raises(SpecError, match=said):
        check_value(path, value)
    with pytest.raises(SpecError, match=said):
        set_field(config, path, value)


@pytest.mark.parametrize(
    ("path", "value", "back"),
    [
        ("max_batch_size", 16, 16),
        ("dynamic_batching.preferred_batch_size", (2,), (2,)),
        ("dynamic_batching.default_queue_policy.timeout_action", "DELAY", "DELAY"),
        ("dynamic_batching.priority_queue_policy[7].max_queue_size", 1, 1),
        ("instance_group[kind=KIND_MODEL].count", 3, 3),
        ("instance_group[0].gpus", (3,), (3,)),
        ("parameters.threads", 4, "4"),
        ("parameters.flag", True, "true"),
        ("parameters.ratio", 0.5, "0.5"),
        ('parameters["a.b"]', "text", "text"),
        ("metric_tags.tier", "b", "b"),
        ("optimization.cuda.graphs", True, True),
        ("version_policy.latest.num_versions", 2, 2),
        ("model_warmup.count", 2, 2),
        ("response_cache", True, True),
    ],
)
def test_field_that_is_set_can_be_read_and_cleared(config, path, value, back):
    set_field(config, path, value)
    assert get(config, path) == back
    set_field(config, path, None)
    assert get(config, path) in (None, 0, False, "", "REJECT")


def test_float32_comes_back_as_written():
    config = parse("")
    set_field(config, "sequence_batching.direct.minimum_slot_utilization", 0.1)
    assert get(config, "sequence_batching.direct.minimum_slot_utilization") == 0.1


def test_setting_creates_messages_and_clearing_leaves_them():
    config = parse("")
    set_field(config, "dynamic_batching.max_queue_delay_microseconds", 100)
    set_field(config, "dynamic_batching.max_queue_delay_microseconds", None)
    assert get(config, "dynamic_batching") is True
    set_field(config, "dynamic_batching", None)
    assert get(config, "dynamic_batching") is None


def test_clearing_creates_nothing():
    config = parse("")
    set_field(config, "dynamic_batching.preferred_batch_size", None)
    set_field(config, "instance_group.count", None)
    set_field(config, "parameters.a", None)
    assert not config.ListFields()


def test_a_selector_creates_what_it_selects():
    config = parse("")
    set_field(config, "instance_group[kind=KIND_GPU,gpus=1].count", 2)
    (group,) = config.instance_group
    assert (group.kind, list(group.gpus), group.count) == (1, [1], 2)


def test_elements_and_entries_are_cleared_completely(config):
    set_field(config, "instance_group[0]", None)
    set_field(config, "parameters.threads", None)
    set_field(config, "dynamic_batching.priority_queue_policy[2]", None)
    assert get(config, "instance_group.kind") == "KIND_CPU"
    assert list(config.parameters) == ["odd.key"]
    assert not config.dynamic_batching.priority_queue_policy


def test_two_schedulers_exclude_each_other(config):
    with pytest.raises(SpecError, match="exclude each other"):
        set_field(config, "sequence_batching.max_sequence_idle_microseconds", 5)
    config = with_fields(
        config, {"sequence_batching.max_sequence_idle_microseconds": 5, "dynamic_batching": None}
    )
    assert get(config, "sequence_batching.max_sequence_idle_microseconds") == 5


def test_clears_come_first_then_the_order_of_the_schema():
    fields = {"response_cache.enable": True, "parameters.b": 1, "parameters.a": 1, "name": "x"}
    fields["sequence_batching"] = None
    assert [path for path, _ in in_order(fields)] == [
        "sequence_batching",
        "name",
        "parameters.a",
        "parameters.b",
        "response_cache.enable",
    ]


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("max_batch_size", "max_batch_size"),
        ("parameters[a]", "parameters.a"),
        ('parameters["a"]', "parameters.a"),
        ("parameters.a.string_value", "parameters.a"),
        ('parameters["a.b"]', 'parameters["a.b"]'),
        ('parameters["qu\\"ote"]', 'parameters["qu\\"ote"]'),
        ("instance_group[ kind = KIND_GPU ].count", None),
        (
            "instance_group[kind=KIND_GPU, gpus=0].count",
            "instance_group[kind=KIND_GPU,gpus=0].count",
        ),
        ("dynamic_batching.priority_queue_policy[01]", "dynamic_batching.priority_queue_policy[1]"),
        ("instance_group[00].count", "instance_group[0].count"),
    ],
)
def test_canonical_path_is_stable(path, normal):
    expected = normal or "instance_group[kind=KIND_GPU].count"
    assert canonical(path) == expected
    assert canonical(expected) == expected
