from __future__ import annotations

import pytest
from builders.configs import GOOD, read

from tuner.modelconfig.tree import Items, Message, build, elements, locate, tokenize

TEXT = """# first
name: "a" 'b'  # pieces

instance_group [
  { kind: KIND_GPU },
  { count: 2 }
]
instance_group: < count: 3 >;
"""


def test_spans_are_those_of_the_source():
    root = build(TEXT)
    name, groups, last = root.fields
    assert TEXT[name.value.start : name.value.end] == "\"a\" 'b'"
    assert isinstance(groups.value, Items)
    assert [TEXT[m.start : m.end] for m in groups.messages] == [
        "{ kind: KIND_GPU }",
        "{ count: 2 }",
    ]
    assert TEXT[groups.value.commas[0]] == ","
    assert isinstance(last.value, Message)
    assert TEXT[last.start : last.end] == "instance_group: < count: 3 >;"
    assert len(elements(root, "instance_group")) == 3


@pytest.mark.parametrize("path", GOOD, ids=lambda p: p.stem)
def test_tokens_and_the_space_between_make_up_the_file(path):
    text = read(path)
    position = 0
    for token in tokenize(text):
        gap = text[position : token.start]
        assert all(not line or line.startswith("#") for line in map(str.strip, gap.split("\n")))
        assert text[token.start : token.end] == token.text
        position = token.end


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("name", (2, 1)),
        ("instance_group", (4, 1)),
        ("instance_group[1]", (6, 3)),
        ("instance_group[1].count", (6, 5)),
        ("instance_group[2].count", (8, 19)),
        ("instance_group[1].gpus", (6, 3)),
        ("dynamic_batching.preserve_ordering", (1, 1)),
    ],
)
def test_locate(path, place):
    assert locate(TEXT, path) == place
