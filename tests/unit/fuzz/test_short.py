"""Some seconds of what `PYTHONPATH=tests python -m fuzz` does for minutes, with fixed seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fuzz.engine import last_tried, run_many, run_one
from fuzz.mutate import Change, Kind
from fuzz.targets import FOUND, TARGETS, Target
from fuzz.watch import BadBehaviourError

from tuner.errors import SpecError

EXAMPLES = {
    "run": 4,
    "directories": 40,
    "resume": 20,
    "write": 40,
    "spec": 40,
    "model-analyzer": 40,
}


@pytest.mark.parametrize("name", TARGETS)
def test_texts_near_to_good_ones_do_no_harm(name: str) -> None:
    last_tried.pop(name, None)
    run_many(name, EXAMPLES.get(name, 80))
    assert name in last_tried


def _found() -> list[Path]:
    return sorted(path for path in FOUND.rglob("*") if path.is_file())


@pytest.mark.parametrize("path", _found(), ids=lambda p: str(p.relative_to(FOUND)))
def test_what_was_found_once_is_not_found_again(path: Path, tmp_path: Path) -> None:
    name, *file = path.relative_to(FOUND).parts[:-1]
    content = path.read_bytes()
    tried = (file[0], content) if file else content
    target, ran = TARGETS[name], []

    def run(given: Any, directory: Path) -> None:
        ran.append(given)
        target.run(given, directory)

    run_one(replace(target, run=run), tried, tmp_path)
    assert ran == [tried]


def _target(run: object) -> Target:
    return Target(inputs=lambda: None, run=run)  # type: ignore[arg-type,return-value]


def test_a_traceback_is_found(tmp_path: Path) -> None:
    def run(_text: bytes, _directory: Path) -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_one(_target(run), b"", tmp_path)


def test_a_mistake_that_is_told_is_an_answer(tmp_path: Path) -> None:
    asked: list[bytes] = []

    def run(text: bytes, _directory: Path) -> None:
        asked.append(text)
        raise SpecError("wrong")

    run_one(_target(run), b"text", tmp_path)
    assert asked == [b"text"]


def test_a_write_outside_is_found_and_one_inside_is_not(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()

    def run(text: bytes, directory: Path) -> None:
        (directory / "in").write_bytes(text)
        if text:
            (tmp_path / "out").write_bytes(text)

    run_one(_target(run), b"", inside)
    with pytest.raises(BadBehaviourError, match=r"open .*/out"):
        run_one(_target(run), b"x", inside)


def test_what_takes_long_is_found(tmp_path: Path) -> None:
    def run(_text: bytes, _directory: Path) -> None:
        sum(range(3_000_000))

    with pytest.raises(BadBehaviourError, match="took"):
        run_one(Target(lambda: None, run, longest_s=0.001), b"", tmp_path)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Kind.INSERT, b"ab!12cd"),
        (Kind.REPLACE, b"ab!cd"),
        (Kind.NUMBER, b"ab!cd"),
        (Kind.CUT, b"abcd"),
        (Kind.DOUBLE, b"ab1212cd"),
        (Kind.GROW, b"ab12121212cd"),
        (Kind.MOVE, b"12abcd"),
    ],
)
def test_changes(kind: Kind, expected: bytes) -> None:
    assert Change(kind, at=0.34, to=0.0, length=2, word=b"!", times=3).apply(b"ab12cd") == expected
