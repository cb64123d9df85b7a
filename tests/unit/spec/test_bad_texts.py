"""Any text for a spec ends soon, with its mistakes: no traceback, no minutes, no memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.effort import takes_at_most
from builders.messages_specs import BAD, BOMB
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import SpecError
from tuner.spec.load import load_spec
from tuner.spec.mistakes import Finding
from tuner.spec.slo import Slo
from tuner.spec.yaml_tree import MOST_NODES, BadYamlError, dump_item, dump_scalar, read_yaml


@pytest.mark.parametrize("name", BAD)
def test_no_text_gives_a_traceback_or_takes_long(name: str, tmp_path: Path) -> None:
    """What is said of each is told in `golden/messages/spec-bad-texts.txt`."""
    path = tmp_path / "spec.yaml"
    path.write_text(BAD[name])

    def refused() -> None:
        with pytest.raises(SpecError) as error:
            load_spec(path)
        assert error.value.message.startswith(f"{path}:")

    assert takes_at_most(500, refused)


def test_an_alias_bomb_is_refused_at_once() -> None:
    assert len(BOMB) < 634

    def refused() -> None:
        with pytest.raises(BadYamlError):
            read_yaml(BOMB)

    assert takes_at_most(10, refused)


def test_as_many_values_as_allowed_are_read() -> None:
    items = MOST_NODES - 3
    assert len(read_yaml(f"a: [{', '.join(['1'] * items)}]").data["a"]) == items


def test_a_bound_too_small_for_a_number_is_meaningless() -> None:
    with pytest.raises(ValueError, match="is meaningless"):
        Slo.parse(f"p99_latency <= 0.{'0' * 500}1ms")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("off", False),
        ("On", True),
        ("~", None),
        ("none", "none"),
        ("12", 12),
        ("1_000", 1000),
        ("0", 0),
        ("-3", -3),
        ("1e5", 100000.0),
        (".5", 0.5),
        ("010", "010"),
        ("20:00", "20:00"),
        ("2024-01-01", "2024-01-01"),
        ("0x10", "0x10"),
        ("64MiB", "64MiB"),
        ("'on'", "on"),
    ],
)
def test_scalars_are_read_with_their_types(text: str, value: object) -> None:
    data = read_yaml(f"key: {text}").data["key"]
    assert data == value
    assert type(data) is type(value)


PRINTED = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@given(PRINTED | st.integers(-(2**64) + 1, 2**64 - 1) | st.booleans() | st.none())
def test_scalars_survive_being_dumped_on_one_line(value: object) -> None:
    dumped = dump_scalar(value)
    assert dumped.splitlines() == [dumped]
    try:
        assert read_yaml(f"key: {dumped}").data == {"key": value}
        assert read_yaml(f"- {dump_item(value)}").data == [value]
    except BadYamlError as error:
        pytest.fail(f"{value!r}: {error}")


def test_keys_are_text_and_positions_count_from_one() -> None:
    tree = read_yaml("a:\n  off: [1, 2]\n")
    assert tree.data == {"a": {"off": [1, 2]}}
    value = tree.position(Finding(("a", "off", 1), ""))
    key = tree.position(Finding(("a", "off"), "", key=True))
    missing = tree.position(Finding(("a", "b"), ""))
    assert (value.line, value.column) == (2, 12)
    assert (key.line, key.column) == (2, 3)
    assert (missing.line, missing.column) == (1, 1)


def test_anchors_are_followed_and_a_cycle_is_a_problem() -> None:
    assert read_yaml("a: &x [1]\nb: *x").data == {"a": [1], "b": [1]}
    cycle = read_yaml("a: &x [*x]")
    assert [message for _, _, message in cycle.problems] == ["an alias is inside its own anchor"]
