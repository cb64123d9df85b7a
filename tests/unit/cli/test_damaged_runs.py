"""A run's directory after a full disk, an editor, or a stranger: told, never a crash."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from builders.commands import Tune
from builders.runs import Toy, make_run

from tuner.report.listing import HEADER

DEEP = "[" * 100_000 + "]" * 100_000
NESTED = '{"run_id": ' + "[" * 60 + "]" * 60 + "}"


def written(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def half(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def becomes(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": written(""),
    "half": half,
    "a list": written("[1, 2]\n"),
    "a number": written("7\n"),
    "null": written("null\n"),
    "no keys": written("{}\n"),
    "deep": written(DEEP + "\n"),
    "nested": written(NESTED + "\n"),
    "NaN": written('{"run_id": NaN}\n'),
    "a number of 5000 digits": written('{"run_id": ' + "9" * 5000 + "}\n"),
    "half a character": written('{"run_id": "\\ud800"}\n'),
    "not UTF-8": lambda path: path.write_bytes(b'{"a": "\xff"}\n'),
    "a pipe": becomes(os.mkfifo),
    "a device": becomes(lambda path: path.symlink_to("/dev/zero")),
    "a link to nothing": becomes(lambda path: path.symlink_to("nowhere")),
    "a directory": becomes(lambda path: path.mkdir()),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path, Toy(trials=5), "improved")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["manifest.json", "result.json"])
@pytest.mark.parametrize("command", ["report", "apply", "compare"])
def test_a_damaged_file_of_a_run_is_named(
    command: str, name: str, damage: str, run: Path, tune: Tune
) -> None:
    DAMAGES[damage](run / name)
    arguments = {"apply": ["--dry-run", str(run)], "compare": [str(run), str(run)]}
    code = tune(command, *arguments.get(command, [str(run)]))
    err = tune.err
    assert "Traceback" not in err
    assert code == 2, err
    assert f"{run / name}" in err or (command, name, damage) == ("apply", "result.json", "no keys")


@pytest.mark.parametrize("damage", [d for d in DAMAGES if d not in ("empty", "half")])
@pytest.mark.parametrize("name", ["trials.jsonl", "confirmation.jsonl", "rejected.jsonl"])
def test_a_damaged_line_of_a_run_is_named(name: str, damage: str, run: Path, tune: Tune) -> None:
    (run / name).touch()
    DAMAGES[damage](run / name)
    code = tune("report", run)
    err = tune.err
    assert "Traceback" not in err
    assert code == 2, err
    assert f"{run / name}" in err


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["manifest.json", "result.json"])
def test_one_damaged_run_does_not_break_the_list(
    name: str, damage: str, run: Path, tmp_path: Path, tune: Tune
) -> None:
    make_run(tmp_path, Toy(trials=5), "kept")
    DAMAGES[damage](run / name)
    assert tune("report", "--output", tmp_path) == 0
    header, *lines = tune.out.splitlines()
    assert header.split() == list(HEADER)
    assert len(lines) == 2
    assert any(line.startswith("Kept") for line in lines)
    if (name, damage) != ("manifest.json", "no keys"):
        assert any(line.startswith("unreadable ") and str(run / name) in line for line in lines)


def test_the_report_does_not_write_through_a_link(run: Path, tmp_path: Path, tune: Tune) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    best = run / "best"
    (elsewhere / "kept.png").write_text("mine")
    for old in sorted(best.glob("*")) if best.exists() else []:
        old.unlink()
    if best.exists():
        best.rmdir()
    best.symlink_to(elsewhere)
    assert tune("report", run, "--format", "json") == 4
    assert "is a link" in tune.err
    assert [p.name for p in elsewhere.iterdir()] == ["kept.png"]
