"""Configs of several models, written together and taken back together."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from builders.plans import cut_short, make_file

from tuner.errors import EnvironmentNotReadyError, SpecError, StalePlanError
from tuner.writeback.apply import apply
from tuner.writeback.journal import journal_of, locked_journal
from tuner.writeback.plan import WritePlan, sha256_of
from tuner.writeback.repository import repair
from tuner.writeback.rollback import rollback
from tuner.writeback.target import Written

OLD = {"tokenizer": "# old t\n", "bert": "# old b\n", "head": None}
NEW = {"tokenizer": "# new t\n", "bert": "# new b\n", "head": "# new h\n"}


def make_plan(repository: Path) -> WritePlan:
    files = (make_file(repository, name, before, NEW[name]) for name, before in OLD.items())
    return WritePlan(tuple(files), "r1")


def plan_of(repository: Path, run_id: str, texts: dict[str, str]) -> WritePlan:
    """A run that read the configs as they are now."""
    texts_before = {name: config(repository, name).read_text() for name in texts}
    files = (make_file(repository, name, texts_before[name], text) for name, text in texts.items())
    return WritePlan(tuple(files), run_id)


def config(repository: Path, name: str) -> Path:
    return repository / name / "config.pbtxt"


def contents(repository: Path) -> dict[str, str | None]:
    paths = {name: config(repository, name) for name in OLD}
    return {name: path.read_text() if path.exists() else None for name, path in paths.items()}


def test_the_result_names_the_first_file_and_the_others(tmp_path: Path) -> None:
    first, *others = make_plan(tmp_path).files
    stated = apply(WritePlan((first, *others), "r1")).facts.to_json()
    assert (stated["path"], stated["sha256_after"]) == (str(first.path), first.sha256_after)
    assert [other["path"] for other in stated["others"]] == [str(file.path) for file in others]


def test_a_file_changed_after_the_write_refuses_the_rollback_of_all(tmp_path: Path) -> None:
    apply(make_plan(tmp_path))
    config(tmp_path, "bert").write_text("# by hand\n")
    before = contents(tmp_path)
    with pytest.raises(StalePlanError, match=r"bert/config\.pbtxt") as caught:
        rollback(tmp_path, "tokenizer")
    assert "--force" in caught.value.hint
    assert contents(tmp_path) == before
    back = rollback(tmp_path, "tokenizer", force=True)
    assert contents(tmp_path) == OLD
    kept = [f.backup.read_text() for f in back.files if f.backup is not None]
    assert "# by hand\n" in kept


def test_a_lock_that_another_tune_holds_refuses_all(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    with locked_journal(tmp_path):
        with pytest.raises(EnvironmentNotReadyError, match=str(tmp_path)):
            apply(plan)
    assert contents(tmp_path) == OLD


@pytest.mark.parametrize("command", [apply, rollback])
def test_half_a_write_is_undone_by_a_command_about_another_model(
    tmp_path: Path, command: Callable[..., Written]
) -> None:
    other = WritePlan((make_file(tmp_path, "other", "# old o\n", "# new o\n"),), "r0")
    if command is rollback:
        apply(other)
    cut_short(make_plan(tmp_path), "tokenizer")
    written = apply(other) if command is apply else rollback(tmp_path, "other")
    (note,) = written.notes
    assert "run r1" in note
    assert [file.path.parent.name for file in written.files] == ["other"]
    assert contents(tmp_path) == OLD


def test_the_write_before_one_that_failed_is_taken_back_by_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(make_plan(tmp_path))
    second = plan_of(tmp_path, "r2", {"bert": "# second b\n"})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", Mock(side_effect=PermissionError(1, "not permitted")))
        with pytest.raises(EnvironmentNotReadyError, match="not permitted"):
            apply(second)
    assert rollback(tmp_path, "bert", run_id="r1").changed
    assert contents(tmp_path) == OLD


def test_half_a_write_with_a_file_changed_since_is_left_to_the_user(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    cut_short(plan, "tokenizer")
    config(tmp_path, "bert").write_text("# by hand\n")
    before = contents(tmp_path)
    for act in (lambda: repair(tmp_path), lambda: rollback(tmp_path, "tokenizer")):
        with pytest.raises(StalePlanError, match="bert"):
            act()
    assert contents(tmp_path) == before
    assert rollback(tmp_path, "head", force=True).changed
    assert contents(tmp_path) == OLD


def test_two_models_with_one_file_get_one_config_or_none(tmp_path: Path) -> None:
    shared = tmp_path / "configs" / "both.pbtxt"
    files = [make_file(tmp_path, name, "# old\n", "# new\n") for name in ("a", "b")]
    shared.parent.mkdir()
    shared.write_text("# old\n")
    for file in files:
        file.path.unlink()
        file.path.symlink_to(shared)
    other = replace(files[1], text_after="# other\n")
    with pytest.raises(SpecError, match=r"a/config\.pbtxt.* .*b/config\.pbtxt"):
        apply(WritePlan((files[0], other), "r1"))
    assert shared.read_text() == "# old\n"
    assert len(apply(WritePlan(tuple(files), "r1")).files) == 2
    assert shared.read_text() == "# new\n"
    for name in ("a", "b"):
        assert rollback(tmp_path, name).changed
        assert shared.read_text() == "# old\n"
        apply(WritePlan(tuple(files), "r1"))


def test_link_out_of_the_repository_is_refused_unless_allowed(tmp_path: Path) -> None:
    repository, outside = tmp_path / "models", tmp_path / "elsewhere" / "head.pbtxt"
    make_plan(repository)
    outside.parent.mkdir()
    outside.write_text("# old h\n")
    config(repository, "head").symlink_to(outside)
    plan = plan_of(repository, "r1", {"tokenizer": "# new t\n", "head": "# new h\n"})
    for act in (apply, partial(apply, dry_run=True)):
        with pytest.raises(EnvironmentNotReadyError, match=str(outside)) as caught:
            act(plan)
        assert "--through-links" in caught.value.hint
    assert contents(repository) == {**OLD, "head": "# old h\n"}
    assert [p.name for p in outside.parent.iterdir()] == ["head.pbtxt"]
    written = apply(plan, through_links=True)
    note = f"{config(repository, 'head')} is a link to {outside}, outside the repository"
    assert written.all_notes == (note,)
    assert outside.read_text() == "# new h\n"
    with pytest.raises(EnvironmentNotReadyError, match=str(outside)):
        rollback(repository, "tokenizer")
    assert contents(repository) == {**NEW, "bert": OLD["bert"]}
    back = rollback(repository, "tokenizer", through_links=True)
    assert outside in {file.real for file in back.files}
    assert contents(repository) == {**OLD, "head": "# old h\n"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_one_directory_that_is_read_only_refuses_all(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    config(tmp_path, "head").parent.chmod(0o555)
    with pytest.raises(EnvironmentNotReadyError, match="cannot write") as caught:
        apply(plan)
    assert "writable" in caught.value.hint
    config(tmp_path, "head").parent.chmod(0o755)
    assert contents(tmp_path) == OLD


def test_a_write_is_one_line_of_the_repositorys_journal_and_its_end_another(
    tmp_path: Path,
) -> None:
    apply(make_plan(tmp_path))
    rollback(tmp_path, "bert")
    lines = [json.loads(line) for line in journal_of(tmp_path).read_text().splitlines()]
    assert [line["action"] for line in lines] == ["apply", "done", "rollback", "done"]
    assert {line["run_id"] for line in lines} == {"r1"}
    paths = [[file["path"] for file in line.get("files", ())] for line in lines]
    assert paths[0] == [f"{name}/config.pbtxt" for name in OLD]
    assert sorted(paths[2]) == sorted(paths[0])
    assert paths[1] == paths[3] == []
    assert lines[0]["files"][0]["sha256_before"] == sha256_of(OLD["tokenizer"] or "")
    assert [path.name for path in tmp_path.glob(".*")] == [".tune.journal"]


@pytest.mark.parametrize(
    "path", ["../m/config.pbtxt", "a/b/config.pbtxt", "/config.pbtxt", "m/1/model.py", "m", 5]
)
def test_a_journal_that_names_a_file_elsewhere_is_damaged(tmp_path: Path, path: object) -> None:
    apply(make_plan(tmp_path))
    journal = journal_of(tmp_path)
    first = json.loads(journal.read_text().splitlines()[0])
    first["files"][0]["path"] = path
    journal.write_text(json.dumps(first) + "\n")
    with pytest.raises(EnvironmentNotReadyError, match="journal:1: "):
        rollback(tmp_path, "tokenizer")
    assert contents(tmp_path) == NEW


def ensemble(repository: Path, steps: list[str]) -> None:
    parts = ", ".join(f'{{ model_name: "{step}" model_version: -1 }}' for step in steps)
    text = f'platform: "ensemble" ensemble_scheduling {{ step [ {parts} ] }}'
    make_file(repository, "whole", text)


def test_a_rollback_of_an_ensemble_takes_back_the_last_write_to_its_steps(tmp_path: Path) -> None:
    old = {name: f"max_batch_size: {n}\n" for n, name in enumerate(OLD)}
    files = [make_file(tmp_path, name, old[name], "max_batch_size: 8\n") for name in OLD]
    ensemble(tmp_path, ["tokenizer", "bert"])
    with pytest.raises(SpecError, match=r"whole/config\.pbtxt"):
        rollback(tmp_path, "whole")
    apply(WritePlan(tuple(files[:2]), "r1"))
    apply(WritePlan((files[2],), "r2"))
    assert rollback(tmp_path, "whole").run_id == "r1"
    assert contents(tmp_path) == {**old, "head": "max_batch_size: 8\n"}
    assert not rollback(tmp_path, "whole").changed


def test_a_model_that_was_removed_since_refuses_the_rollback_unless_forced(tmp_path: Path) -> None:
    apply(make_plan(tmp_path))
    shutil.rmtree(tmp_path / "bert")
    with pytest.raises(EnvironmentNotReadyError, match="bert") as error:
        rollback(tmp_path, "head")
    assert "--force" in error.value.hint
    assert contents(tmp_path) == {**NEW, "bert": None}
    rollback(tmp_path, "head", force=True)
    assert contents(tmp_path) == {**OLD, "bert": None}


def test_half_a_write_is_not_overlooked_where_the_journal_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = WritePlan((make_file(tmp_path, "other", "# old o\n", "# new o\n"),), "r2")
    cut_short(make_plan(tmp_path), "tokenizer")
    with monkeypatch.context() as patch:
        once = [OSError(5, "Input/output error"), b"", b""]
        patch.setattr(os, "pread", Mock(side_effect=once))
        with pytest.raises(EnvironmentNotReadyError, match="Input/output error"):
            apply(other)
    assert other.files[0].path.read_text() == "# old o\n"
    assert repair(tmp_path) is not None
    assert contents(tmp_path) == OLD


def test_half_a_write_of_a_model_that_was_removed_since_stops_no_run(tmp_path: Path) -> None:
    cut_short(make_plan(tmp_path), "tokenizer")
    shutil.rmtree(tmp_path / "bert")
    assert repair(tmp_path) is None


def test_a_file_edited_while_another_fails_is_left_as_it_was_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path)
    rename = Path.replace

    def edited_meanwhile(path: Path, target: Path) -> Path:
        if target == config(tmp_path, "bert"):
            monkeypatch.setattr(Path, "replace", rename)
            config(tmp_path, "tokenizer").write_text("# by hand\n")
            raise PermissionError(1, "Operation not permitted")
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", edited_meanwhile)
    with pytest.raises(EnvironmentNotReadyError, match=r"cannot write .*bert"):
        apply(plan)
    assert contents(tmp_path) == {**OLD, "tokenizer": "# by hand\n"}


def test_changed_fields_are_named_before_existing_ones(tmp_path: Path) -> None:
    """So that the command to take it back names a model that was written."""
    plan = make_plan(tmp_path)
    config(tmp_path, "tokenizer").write_text(NEW["tokenizer"] or "")
    files = apply(plan).files
    assert [(f.path.parent.name, f.changed) for f in files] == [
        ("bert", True),
        ("head", True),
        ("tokenizer", False),
    ]
    rollback(tmp_path, "bert")
    assert contents(tmp_path) == {**OLD, "tokenizer": NEW["tokenizer"]}
