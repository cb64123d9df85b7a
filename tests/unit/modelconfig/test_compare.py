from __future__ import annotations

import pytest
from builders.configs import config

from tuner.modelconfig.base import differences
from tuner.modelconfig.message import parse

#: What a server without a GPU reports for `config()` with dynamic_batching { }.
RUNNING = """
  version_policy { latest { num_versions: 1 } }
  optimization { input_pinned_memory { enable: true } output_pinned_memory { enable: true } }
  dynamic_batching { preferred_batch_size: 8 }
  instance_group { name: "m_0" kind: KIND_CPU count: 1 }
  default_model_filename: "model.py"
"""
ALL = (
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


def test_what_triton_fills_in_is_no_difference():
    assert differences(config("dynamic_batching { }"), config(RUNNING), ALL) == []


@pytest.mark.parametrize(
    ("asked", "path", "sentence"),
    [
        (
            "dynamic_batching { max_queue_delay_microseconds: 5 }",
            "dynamic_batching.max_queue_delay_microseconds",
            "asked for dynamic_batching.max_queue_delay_microseconds = 5, the server has 0",
        ),
        (
            "dynamic_batching { preferred_batch_size: [ 2, 4 ] }",
            "dynamic_batching.preferred_batch_size",
            "asked for dynamic_batching.preferred_batch_size = [2, 4], the server has [8]",
        ),
        ("", "dynamic_batching", "asked for dynamic_batching = nothing, the server has true"),
        (
            "dynamic_batching { } instance_group { count: 4 }",
            "instance_group.count",
            "= 4, the server has 1",
        ),
        (
            "instance_group { kind: KIND_GPU count: 1 }",
            "instance_group[kind=KIND_GPU].kind".replace("[kind=KIND_GPU]", "[0]"),
            "= KIND_GPU, the server has KIND_CPU",
        ),
        (
            "instance_group [ { count: 1 }, { count: 2 } ]",
            "instance_group[1].count",
            "= 2, the server has nothing",
        ),
        (
            'parameters { key: "threads" value { string_value: "4" } }',
            "parameters.threads",
            "= 4, the server has nothing",
        ),
        (
            "response_cache { enable: true }",
            "response_cache.enable",
            "= true, the server has nothing",
        ),
        (
            "version_policy { latest { num_versions: 3 } }",
            "version_policy.latest.num_versions",
            "= 3",
        ),
    ],
)
def test_differences_are_sentences(asked, path, sentence):
    (difference,) = differences(config(asked), config(RUNNING), [path])
    assert sentence in difference


def test_only_the_owned_paths_are_compared():
    assert (
        differences(config("instance_group { count: 4 }"), config(RUNNING), ["max_batch_size"])
        == []
    )


def test_groups_are_matched_by_position_when_triton_changes_their_kind():
    asked = config("dynamic_batching { } instance_group { kind: KIND_AUTO count: 1 }")
    path = "instance_group[kind=KIND_AUTO].count"
    assert differences(asked, config(RUNNING), [path]) == []
    asked.instance_group[0].count = 2
    assert "= 2, the server has 1" in differences(asked, config(RUNNING), [path])[0]


def test_sequence_defaults_are_known():
    asked = parse("max_batch_size: 4 sequence_batching { oldest { } }")
    running = parse(
        "max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: 1000000 "
        "oldest { preferred_batch_size: 4 } }"
    )
    paths = [
        "sequence_batching.max_sequence_idle_microseconds",
        "sequence_batching.oldest.preferred_batch_size",
        "sequence_batching.oldest",
    ]
    assert differences(asked, running, paths) == []
    running.sequence_batching.max_sequence_idle_microseconds = 7
    assert len(differences(asked, running, paths)) == 1
