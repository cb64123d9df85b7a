"""What holds for every text and every set of fields."""

from __future__ import annotations

import random

from builders.configs import GOOD, read
from builders.owned import assert_only_owned_text_changes
from builders.rendering import WORDS, config_text
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tuner.errors import SpecError
from tuner.modelconfig.edit import edit
from tuner.modelconfig.message import parse
from tuner.modelconfig.path import get, in_order, with_fields
from tuner.modelconfig.schema import same_config

UNSET = st.none()
COUNT = st.integers(0, 2**31 - 1)
SIZES = st.lists(st.integers(1, 64), max_size=4).map(tuple)
PRESENT = st.just(True)
WORD = st.sampled_from(WORDS)
FIELDS = {
    "max_batch_size": COUNT | UNSET,
    "default_model_filename": WORD | UNSET,
    "dynamic_batching": PRESENT | UNSET,
    "dynamic_batching.preferred_batch_size": SIZES | UNSET,
    "dynamic_batching.max_queue_delay_microseconds": st.integers(0, 2**64 - 1) | UNSET,
    "dynamic_batching.preserve_ordering": st.booleans() | UNSET,
    "dynamic_batching.default_queue_policy": PRESENT | UNSET,
    "dynamic_batching.default_queue_policy.timeout_action": st.sampled_from(["REJECT", "DELAY"]),
    "dynamic_batching.priority_queue_policy[1].max_queue_size": COUNT | UNSET,
    "dynamic_batching.priority_queue_policy[16]": PRESENT | UNSET,
    "instance_group.count": COUNT | UNSET,
    "instance_group": PRESENT | UNSET,
    "instance_group[0].gpus": SIZES | UNSET,
    "instance_group[1]": UNSET,
    "instance_group[2].kind": st.sampled_from(["KIND_CPU", "KIND_GPU", "KIND_AUTO"]) | UNSET,
    "instance_group[kind=KIND_GPU].count": COUNT | UNSET,
    "instance_group[kind=KIND_GPU,gpus=16].rate_limiter.priority": COUNT | UNSET,
    "parameters.threads": WORD | COUNT | st.booleans() | UNSET,
    'parameters["odd.key"]': WORD | UNSET,
    "metric_tags.a": WORD | UNSET,
    "optimization.cuda.graphs": st.booleans() | UNSET,
    "optimization.execution_accelerators.gpu_execution_accelerator[name=a].parameters.a": WORD,
    "sequence_batching.direct.minimum_slot_utilization": st.sampled_from([0.1, 0.5, 1, None]),
    "version_policy.latest.num_versions": st.integers(0, 2**32 - 1) | UNSET,
    "response_cache.enable": st.booleans() | UNSET,
    "model_warmup[name=a].inputs.a.dims": SIZES | UNSET,
}
RENDERED = st.integers(0, 2**32).map(lambda seed: config_text(random.Random(seed)))
TEXTS = st.sampled_from([read(path) for path in GOOD]) | RENDERED | RENDERED
ONE_FIELD = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda path: st.tuples(st.just(path), FIELDS[path])
)
FIELD_SETS = st.lists(ONE_FIELD, max_size=6).map(dict)
SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def changed(config, fields):
    """A copy of ``config`` with ``fields``; rejects the example when they cannot be set."""
    try:
        return with_fields(config, fields)
    except SpecError:
        assume(False)


@SETTINGS
@given(TEXTS, FIELD_SETS)
def test_the_edited_text_means_the_changed_message(text, fields):
    wanted = changed(parse(text), fields)
    assert same_config(parse(edit(text, fields)), wanted)


@SETTINGS
@given(TEXTS, FIELD_SETS)
def test_editing_again_changes_nothing(text, fields):
    wanted = changed(parse(text), fields)
    assume(same_config(changed(wanted, fields), wanted))  # removing [1] twice removes two
    once = edit(text, fields)
    assert edit(once, fields) == once


@SETTINGS
@given(TEXTS, st.sets(st.sampled_from(sorted(FIELDS))))
def test_setting_what_is_there_keeps_every_byte(text, paths):
    config = parse(text)
    fields = {}
    for path in paths:
        try:
            fields[path] = get(config, path)
        except SpecError:
            continue
    fields.pop("instance_group[1]", None)  # its presence cannot be set, only cleared
    assert edit(text, fields) == text


@SETTINGS
@given(TEXTS, FIELD_SETS)
def test_several_fields_are_edited_one_by_one(text, fields):
    wanted = changed(parse(text), fields)
    assume(not same_config(wanted, parse(text)))
    step_by_step = text
    for path, value in in_order(fields):
        step_by_step = edit(step_by_step, {path: value})
    assert edit(text, fields) == step_by_step


@SETTINGS
@given(TEXTS, ONE_FIELD)
def test_nothing_outside_the_owned_field_changes(text, field):
    path, value = field
    changed(parse(text), {path: value})
    assert_only_owned_text_changes(text, path, edit(text, {path: value}))


def test_the_random_texts_are_varied():
    texts = [config_text(random.Random(seed)) for seed in range(200)]
    assert all(parse(text) is not None for text in texts)
    assert len(set(texts)) > 150
    for syntax in ("<", "\r\n", "# c", ";", "'", "\t", "[", "key"):
        assert any(syntax in text for text in texts), syntax
