"""What the shell is offered, asked in the way that click's shell scripts ask."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders.runs import Toy, make_run
from click.shell_completion import ShellComplete

from tuner.cli import cli


def offered(*words: str) -> list[str]:
    """For the last of ``words``, after the ones before it."""
    complete = ShellComplete(cli, {}, "tune", "_TUNE_COMPLETE")
    return [item.value for item in complete.get_completions(list(words[:-1]), words[-1])]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "results", Toy(trials=1), "kept")
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "toy.yaml").write_text("model: toy\nslo: [p99_latency <= 9ms]\n")
    os.mkfifo(tmp_path / "specs" / "pipe.yaml")
    (tmp_path / "other.yaml").write_text("a: 1\n")
    for name in ("bert", "resnet", ".git"):
        (tmp_path / "model_repository" / name).mkdir(parents=True)
    return tmp_path


def test_commands_and_options_are_completed(here: Path) -> None:
    assert "check" in offered("ch")
    assert "--update-baseline" in offered("check", "--up")


@pytest.mark.parametrize("command", ["run", "check", "plan"])
def test_specs_but_no_other_yaml(here: Path, command: str) -> None:
    assert offered(command, "") == ["specs/toy.yaml"]
    assert offered(command, "specs/") == ["specs/toy.yaml"]
    assert offered(command, "oth") == []


@pytest.mark.parametrize("command", ["report", "apply", "compare"])
def test_runs_by_directory_and_by_id(here: Path, command: str) -> None:
    run = "20250301-100000-toy-kept"
    assert offered(command, "") == [f"results/{run}"]
    assert offered(command, "2025") == [run]


def test_a_series_where_one_is_taken(here: Path) -> None:
    series = "20250302-100000-series"
    (here / "results" / series).mkdir()
    (here / "results" / series / "series.json").touch()
    for command in (["report"], ["run", "--resume"]):
        assert offered(*command, "")[0] == f"results/{series}"
        assert offered(*command, "20250302") == [series]
    assert offered("apply", "20250302") == []


def test_runs_below_another_output(here: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "out", Toy(trials=1), "failed")
    assert offered("report", "--output", "out", "2025") == ["20250301-100000-toy-failed"]


RUN = "results/20250301-100000-toy-kept"


def test_models_of_a_repository(here: Path) -> None:
    assert offered("init", "") == ["bert", "resnet"]
    assert offered("init", "r") == ["resnet"]
    assert offered("init", "model_repository/r") == ["model_repository/resnet"]
    assert offered("init", "--repository", "specs", "") == []
    assert offered("lint", "model_repository", "--model", "b") == ["bert"]


def test_rollback_completes_models_and_runs(here: Path) -> None:
    assert offered("rollback", "") == ["bert", "resnet", RUN]
    assert offered("rollback", "be") == ["bert"]
    assert offered("rollback", "res") == ["resnet", RUN]


@pytest.mark.parametrize("command", ["models", "lint"])
def test_repository_is_completed_by_directories(here: Path, command: str) -> None:
    complete = ShellComplete(cli, {}, "tune", "_TUNE_COMPLETE")
    (item,) = complete.get_completions([command], "mod")
    assert (item.value, item.type) == ("mod", "dir")


def test_help_completes_commands(here: Path) -> None:
    assert offered("help", "ch") == ["check"]


def test_each_argument_of_each_command_is_completed() -> None:
    """By us, or by the shell as a file."""
    from click import Context, ParamType

    top = Context(cli)
    plain = ParamType.shell_complete
    for name in cli.list_commands(top):
        command = cli.get_command(top, name)
        assert command is not None
        for param in command.params:
            if param.param_type_name == "argument":
                completes = param._custom_shell_complete is not None
                by_type = type(param.type).shell_complete is not plain
                assert completes or by_type, (name, param)
