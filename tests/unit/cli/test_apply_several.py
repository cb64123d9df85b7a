"""`tune apply` and `tune rollback` of a run that searched several models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.commands import Tune
from builders.messages_runs import SEARCHED, add_a_model, edit_tokenizer, put_several

from tuner.record.result_schema import check


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Not written yet."""
    return put_several(tmp_path)


@pytest.fixture
def repository(run: Path) -> Path:
    """With the configs that the run read."""
    return run.parent / "models"


def winners(run: Path) -> list[str]:
    models = json.loads((run / "result.json").read_text())["models"]
    return [models[name]["config_after"] for name in SEARCHED]


def contents(repository: Path) -> list[str]:
    return [(repository / name / "config.pbtxt").read_text() for name in SEARCHED]


def test_all_files_are_listed_written_and_taken_back_by_one_rollback(
    run: Path, repository: Path, tune: Tune
) -> None:
    old = contents(repository)
    where = ["--repository", str(repository)]
    configs = [repository / name / "config.pbtxt" for name in SEARCHED]
    assert tune("apply", run, *where, "--dry-run") == 0
    for name in SEARCHED:
        assert f"--- a/{name}/config.pbtxt\n+++ b/{name}/config.pbtxt\n" in tune.out
    assert contents(repository) == old

    assert tune("apply", run, *where) == 0
    out = tune.out
    assert [line for line in out.splitlines() if line.startswith("written")] == [
        f"written: {config}" for config in configs
    ]
    assert out.count("\nbackup: ") == 2
    assert contents(repository) == winners(run)
    result = json.loads((run / "result.json").read_text())
    assert check(result) == []
    assert [other["path"] for other in result["written"]["others"]] == [str(configs[1])]

    assert tune("rollback", "tokenizer", *where, "--output", run.parent) == 0
    out = tune.out
    assert [line for line in out.splitlines() if line.startswith("restored")] == [
        f"restored: {config}" for config in reversed(configs)
    ]
    for name in SEARCHED:
        assert f"--- a/{name}/config.pbtxt\n+++ b/{name}/config.pbtxt\n" in out
    assert contents(repository) == old
    assert f"`tune apply {run}`" in (run / "report.md").read_text()
    assert tune("rollback", "tokenizer", *where, "--output", run.parent) == 0
    assert sorted(tune.out.splitlines()) == [f"already restored: {config}" for config in configs]


def refused(run: Path, repository: Path, code: int, tune: Tune) -> None:
    """`tune apply` ends with this exit code, and every file is as it was."""
    before = contents(repository)
    assert tune("apply", run, "--repository", repository) == code
    assert contents(repository) == before


def test_one_file_changed_since_refuses_all_with_exit_code_13(
    run: Path, repository: Path, tune: Tune
) -> None:
    refused(edit_tokenizer(run), repository, 13, tune)


def test_a_run_that_names_a_model_it_did_not_read_is_refused(
    run: Path, repository: Path, tune: Tune
) -> None:
    refused(add_a_model(run), repository, 2, tune)
