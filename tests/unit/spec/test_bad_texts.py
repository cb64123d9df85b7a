"""Any text for a spec ends soon, with its mistakes: no traceback, no minutes, no memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import SpecError
from tuner.spec.load import load_spec
from tuner.spec.mistakes import Finding
from tuner.spec.slo import Slo
from tuner.spec.yaml_tree import LARGEST_BYTES, MOST_NODES, BadYamlError, dump_scalar, read_yaml

SPACE = "space: {max_batch_size: {choice: [1, 2]}}\n"
HEAD = "model: m\nrepository: .\nslo: [p99_latency <= 60ms]\n"
SPEC = HEAD + SPACE
WITHOUT_SLO = "model: m\nrepository: .\n" + SPACE
WITHOUT_REPOSITORY = "model: m\nslo: [p99_latency <= 60ms]\n" + SPACE
BOMB = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)

BAD = {
    "nested flow lists": ("[" * 900, "1:65: more than 64 levels deep"),
    "nested blocks": (
        "".join(" " * n + "a:\n" for n in range(300)),
        "64:64: more than 64 levels deep",
    ),
    "aliases in aliases": (
        "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 100)),
        "more than 64 levels deep",
    ),
    "alias bomb": (BOMB, "more than 10000 keys and values"),
    "many items": (SPEC + f"x: [{'1, ' * 20_000}]", "more than 10000 keys and values"),
    "a long text": (SPEC + "#" * LARGEST_BYTES, "1:1: longer than 256 KiB"),
    "a number of 5000 digits": (
        SPEC + f"budget: {{trials: {'9' * 5000}}}",
        "5:18: a number of 5000 characters",
    ),
    "a number of 30 digits": (
        SPEC + f"budget: {{trials: {'9' * 30}}}",
        "5:18: 999999999999999999999999999999 does not fit in a field of 64 bits",
    ),
    "a time with a long exponent": (
        SPEC + "budget: {time: 1e999999999s}",
        "5:16: budget.time: '1e999999999s' is far too large",
    ),
    "an endless time": (SPEC + "budget: {time: 1e400h}", "'1e400h' is far too large"),
    "an infinite time": (SPEC + "budget: {time: .inf}", "budget.time: inf is not a duration"),
    "a size with a long exponent": (
        SPEC + "server: {mode: docker, image: x, shm_size: 1e5000000B}",
        "server.shm_size: '1e5000000B' is far too large",
    ),
    "a bound with a long exponent": (
        WITHOUT_SLO + "slo: [p99_latency <= 1e999999999ms]",
        "4:7: slo[0]: '1e999999999ms' is far too large",
    ),
    "an infinite bound": (
        WITHOUT_SLO + "slo: [p99_latency <= 1e400ms]",
        "slo[0]: '1e400ms' is far too large",
    ),
    "a bound of 200000 digits": (
        WITHOUT_SLO + f"slo: [p99_latency <= {'9' * 200_000}ms]",
        "9...' is far too large",
    ),
    "a bound of spaces": (
        WITHOUT_SLO + f'slo: ["p99_latency <= a{" " * 200_000}b"]',
        "p99_latency is bounded by a time",
    ),
    "no such user": (
        WITHOUT_REPOSITORY + "repository: ~nosuchuser/x",
        "4:13: repository: is not a usable path",
    ),
    "a program of no such user": (
        SPEC + "workload: {perf_analyzer: ~nosuchuser/x}",
        "5:27: workload.perf_analyzer: is not a usable path",
    ),
    "a name of 300 characters": (
        WITHOUT_REPOSITORY + f"repository: {'x' * 300}",
        "repository: is not a usable path: file name too long",
    ),
    "every subset of 64 sizes": (
        HEAD + "space: {dynamic_batching.preferred_batch_size: {subsets: "
        f"{list(range(1, 65))}, at_most: 64}}}}",
        "4:58: space.dynamic_batching.preferred_batch_size.subsets: stands for more than 5000",
    ),
    "a range of all numbers": (
        HEAD + "space: {instance_group.count: {int: [1, 18446744073709551615]}}",
        "space.instance_group.count.int: stands for more than 1000000 values",
    ),
    "a thousand fields": (
        HEAD + "space:\n" + "".join(f"  parameters.k{n}: {{choice: [1, 2]}}\n" for n in range(999)),
        "4:1: space: 999 fields are too many to search; choose at most 64",
    ),
    "unknown keys": (SPEC + "".join(f"server{n}: x\n" for n in range(4_900)), "and 4800 more"),
    "a tag before no number": (SPEC + "x: !!int foo", "5:4: tags (!...) are not used in a spec"),
    "a date": (SPEC + "x: !!timestamp x", "tags (!...) are not used in a spec"),
    "NUL": (SPEC + 'x: "\\0"', "5:4: a character that no name or path can have"),
    "half a character": (SPEC + 'x: "\\ud800"', "5:4: a character that no name or path can have"),
}


@pytest.mark.parametrize("name", BAD)
def test_no_text_gives_a_traceback_or_takes_long(name: str, tmp_path: Path) -> None:
    text, expected = BAD[name]
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(SpecError) as error:
        load_spec(path)
    assert time.process_time() - began < 5
    assert expected in error.value.message
    assert error.value.message.startswith(f"{path}:")


def test_an_alias_bomb_is_refused_in_a_tenth_of_a_second() -> None:
    assert len(BOMB) < 634
    best = min(_seconds_to_refuse(BOMB) for _ in range(3))
    assert best < 0.1


def _seconds_to_refuse(text: str) -> float:
    from tuner.spec.yaml_tree import BadYamlError

    began = time.process_time()
    with pytest.raises(BadYamlError):
        read_yaml(text)
    return time.process_time() - began


def test_a_file_that_never_ends_is_no_spec() -> None:
    with pytest.raises(SpecError, match="/dev/zero:1:1: longer than 256 KiB"):
        load_spec(Path("/dev/zero"))


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
def test_words(text: str, value: object) -> None:
    data = read_yaml(f"key: {text}").data["key"]
    assert data == value
    assert type(data) is type(value)


PRINTED = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@given(PRINTED | st.integers(-(2**64) + 1, 2**64 - 1) | st.booleans() | st.none())
def test_scalars_survive_being_dumped(value: object) -> None:
    try:
        assert read_yaml(f"key: {dump_scalar(value)}").data == {"key": value}
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
