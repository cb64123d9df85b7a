"""Where the text of one field stands, and whether an edit left everything else as it was."""

from __future__ import annotations

from itertools import pairwise

from tuner.modelconfig.encoding import as_python_reads
from tuner.modelconfig.message import parse
from tuner.modelconfig.path import element_index
from tuner.modelconfig.path_steps import Step, parse_steps
from tuner.modelconfig.tree import Field, Items, Message, build, elements


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
        matches = occurrences(text, parent, config, step, path)
        if not matches:
            return []
        config = getattr(config, step.field.name)
        if step.is_map:
            config = config[step.key]
            values = elements(matches[-1].message, "value")
            if not values:
                return []
            parent = values[-1].message
        else:
            if hasattr(config, "add"):
                config = config[matches[-1].index]
            parent = matches[-1].message
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
    every = [
        Occurrence(text, element.field, element.message, index)
        for index, element in enumerate(elements(parent, step.field.name))
    ]
    if step.is_map:
        return [o for o in every if entry_key(text, o.message, step) == step.key]
    if not hasattr(getattr(config, step.field.name), "add"):
        return every
    if step.index is not None and step.index >= len(every):
        return []  # what is not there can be cleared
    index = element_index(config, step, path)
    return [] if index is None else [every[index]]


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
