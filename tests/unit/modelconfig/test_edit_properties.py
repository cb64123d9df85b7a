"""What holds for every text and every set of fields."""

from __future__ import annotations

import os
import random
from itertools import pairwise

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from unit.modelconfig.rendering import WORDS, config_text

from tuner.errors import SpecError
from tuner.modelconfig.dialect import as_python_reads
from tuner.modelconfig.edit import edit
from tuner.modelconfig.message import parse
from tuner.modelconfig.path import element_index, get, in_order, set_fields
from tuner.modelconfig.schema import same_config
from tuner.modelconfig.steps import Step, parse_steps
from tuner.modelconfig.tree import Field, Items, Message, build, elements

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
TEXTS = st.integers(0, 2**32).map(lambda seed: config_text(random.Random(seed)))
ONE_FIELD = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda path: st.tuples(st.just(path), FIELDS[path])
)
FIELD_SETS = st.lists(ONE_FIELD, max_size=6).map(dict)
SETTINGS = settings(
    max_examples=int(os.environ.get("TUNE_EXAMPLES", "60")),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    derandomize="TUNE_EXAMPLES" not in os.environ,
)


def changed(config, fields):
    """A copy of ``config`` with ``fields``; rejects the example when they cannot be set."""
    copy = type(config)()
    copy.CopyFrom(config)
    try:
        set_fields(copy, fields)
    except SpecError:
        assume(False)
    return copy


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


def assert_only_owned_text_changes(before, path, after):
    spans = owned_spans(before, path)
    if not spans:
        prefix, suffix = common_prefix(before, after), common_suffix(before, after)
        between = before[prefix : len(before) - suffix].strip()  # new comma and new list item
        assert between in after[prefix : len(after) - suffix]
        return
    start, end = spans[0][0], spans[-1][1]
    assert after.startswith(before[:start])
    assert after.endswith(before[end:])
    middle = after[start : len(after) - len(before[end:])]
    for (_, gap_start), (gap_end, _) in pairwise(spans):
        kept = before[gap_start:gap_end].strip().strip(",;").strip()
        assert kept in middle
        middle = middle[middle.index(kept) + len(kept) :]


def owned_spans(text, path):
    """Where the field stands, with its lines and the comment behind it; [] when it does not.

    A message of a list takes the commas beside it along, and the whole field when it is alone.
    """
    parent, config = build(text), parse(text)
    *parents, last = parse_steps(path)
    for step in parents:
        found = occurrences(text, parent, config, step, path)
        if not found:
            return []
        config = getattr(config, step.field.name)
        if step.is_map:
            config = config[step.key]
            values = elements(found[-1].message, "value")
            if not values:
                return []
            parent = values[-1].message
        else:
            if hasattr(config, "add"):
                config = config[found[-1].index]
            parent = found[-1].message
    if last.field.message_type is None:
        return [with_line(text, f.start, f.end) for f in parent.named(last.field.name)]
    return [o.span for o in occurrences(text, parent, config, last, path)]


class Occurrence:
    def __init__(self, text: str, field: Field, message: Message, index: int) -> None:
        self.message = message
        self.index = index
        self.span = with_line(text, field.start, field.end)
        if isinstance(field.value, Items) and len(field.value.items) > 1:
            items = field.value.items
            place = items.index(message)
            start = items[place - 1].end if place else message.start
            end = items[place + 1].start if place + 1 < len(items) else message.end
            self.span = with_line(text, start, end)


def occurrences(text: str, parent: Message, config, step: Step, path: str) -> list[Occurrence]:
    found = [
        Occurrence(text, element.field, element.message, index)
        for index, element in enumerate(elements(parent, step.field.name))
    ]
    if step.is_map:
        return [o for o in found if entry_key(text, o.message, step) == step.key]
    if not hasattr(getattr(config, step.field.name), "add"):
        return found
    if step.index is not None and step.index >= len(found):
        return []  # what is not there can be cleared
    index = element_index(config, step, path)
    return [] if index is None else [found[index]]


def entry_key(text, message, step):
    name = step.field.name
    entry = parse_in(step, f"{name} {{ {text[message.body_start : message.body_end]}\n }}")
    return next(iter(getattr(entry, name)))


def parse_in(step, text):
    from google.protobuf import message_factory, text_format

    holder = message_factory.GetMessageClass(step.field.containing_type)()
    return text_format.Parse(as_python_reads(text), holder)


def with_line(text, start, end):
    newline = text.find("\n", end)
    return text.rfind("\n", 0, start) + 1, len(text) if newline < 0 else newline + 1


def common_prefix(one, other):
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def common_suffix(one, other):
    longest = min(len(one), len(other)) - common_prefix(one, other)
    return common_prefix(one[::-1][:longest], other[::-1][:longest])


def test_the_random_texts_are_varied():
    texts = [config_text(random.Random(seed)) for seed in range(200)]
    assert all(parse(text) is not None for text in texts)
    assert len(set(texts)) > 150
    for syntax in ("<", "\r\n", "# c", ";", "'", "\t", "[", "key"):
        assert any(syntax in text for text in texts), syntax
