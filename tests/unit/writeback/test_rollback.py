"""The way back, whatever happened to the journal."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from builders.plans import AFTER, BEFORE, make_plan, note, only

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.writeback.apply import apply
from tuner.writeback.backups import KEPT
from tuner.writeback.journal import Action, journal_of
from tuner.writeback.plan import WritePlan, sha256_of
from tuner.writeback.rollback import is_back, rollback


def applied(repository: Path, before: str | None = BEFORE) -> WritePlan:
    plan = make_plan(repository, before)
    apply(plan)
    return plan


@pytest.mark.parametrize("before", [BEFORE, None])
def test_whether_it_is_back_is_seen_in_the_file(tmp_path: Path, before: str | None) -> None:
    plan = applied(tmp_path, before)
    facts = (plan.path, plan.sha256_before, plan.sha256_after)
    assert not is_back(*facts)
    assert rollback(tmp_path, "m").run_id == plan.run_id
    assert is_back(*facts)
    plan.path.write_text("changed by hand")
    assert not is_back(*facts)
    assert not is_back(tmp_path / "another machine" / "config.pbtxt", *facts[1:])


def test_a_model_never_written_is_explained_and_left_alone(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    with pytest.raises(SpecError):
        rollback(tmp_path, "m")
    assert {p.name for p in plan.path.parent.iterdir()} == {"1", "config.pbtxt"}


def test_a_dry_run_tells_what_a_rollback_does_and_changes_nothing(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    apply(plan)
    there = {p: p.read_bytes() for p in plan.path.parent.iterdir() if p.is_file()}
    preview = rollback(tmp_path, "m", dry_run=True)
    assert there == {p: p.read_bytes() for p in plan.path.parent.iterdir() if p.is_file()}
    done = rollback(tmp_path, "m")
    assert only(preview) == replace(only(done), backup=None)
    assert only(done).diff.endswith("-max_batch_size: 16\n+max_batch_size: 8\n")


def test_a_damaged_backup_is_not_restored(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    backup = only(apply(plan)).backup
    backup.write_text("damaged")
    with pytest.raises(EnvironmentNotReadyError, match="missing or damaged"):
        rollback(tmp_path, "m")
    assert plan.path.read_bytes() == AFTER.encode()


THIRD = "max_batch_size: 32\n"


def noted_only(plan: WritePlan, after: str, run_id: str = "r2") -> None:
    """A write that a power cut ended between its entry in the journal and the rename."""
    checksum = sha256_of(plan.path.read_bytes().decode())
    note(plan.repository, Action.APPLY, run_id, {plan.path: (checksum, sha256_of(after))})


def backups(config: Path) -> list[bytes]:
    return sorted(path.read_bytes() for path in config.parent.glob(".config.pbtxt.tune.*.bak"))


def config_text(number: int) -> str:
    return f"max_batch_size: {number}\n"


def written_often(directory: Path, count: int) -> Path:
    """A config that was `config_text` of 0 and was replaced so many times."""
    for number in range(count):
        apply(make_plan(directory, before=config_text(number), after=config_text(number + 1)))
    return directory / "m" / "config.pbtxt"


def test_the_newest_backups_are_kept_and_older_ones_that_tune_wrote_are_removed(
    tmp_path: Path,
) -> None:
    config = written_often(tmp_path, KEPT + 5)
    assert backups(config) == sorted(config_text(n).encode() for n in (0, *range(5, KEPT + 5)))
    assert rollback(tmp_path, "m").changed
    assert config.read_text() == config_text(KEPT + 4)
    assert len(backups(config)) == 1 + KEPT  # what the rollback replaced is one of them
    assert config_text(KEPT + 5).encode() in backups(config)


def test_backups_of_texts_by_a_person_are_never_removed(tmp_path: Path) -> None:
    """The first config, one edited later, and one that `tune rollback --force` replaced."""
    config = written_often(tmp_path, 2)
    apply(make_plan(tmp_path, before="# edited\n", after=config_text(3)))
    config.write_text("# forced\n")
    rollback(tmp_path, "m", force=True)
    unrecorded = config.with_name(f".config.pbtxt.tune.{sha256_of('# unrecorded')[:16]}.bak")
    unrecorded.write_text("# unrecorded")  # as settling half a write keeps it
    written_often(tmp_path, KEPT + 5)
    people = {config_text(0), "# edited\n", "# forced\n", "# unrecorded"}
    kept = {content.decode() for content in backups(config)}
    assert people <= kept
    assert len(kept) == len(people) + KEPT


def test_a_backup_that_a_rollback_needs_survives_writes_that_were_cut_short(
    tmp_path: Path,
) -> None:
    config = written_often(tmp_path, KEPT + 1)
    plan = make_plan(tmp_path, before=config_text(KEPT + 1), after=THIRD)
    for number in range(2 * KEPT):
        noted_only(plan, f"never {number}\n")
    assert rollback(tmp_path, "m").changed
    assert config.read_text() == config_text(KEPT)


def test_nothing_is_removed_by_a_damaged_journal_or_of_other_names(tmp_path: Path) -> None:
    others = [tmp_path / "m" / ".config.pbtxt.tune.mine.bak", tmp_path / "m" / "notes.bak"]
    (tmp_path / "m").mkdir()
    for other in others:
        other.write_text("mine")
    config = written_often(tmp_path, KEPT)
    journal_of(tmp_path).write_text("no journal\n")
    apply(make_plan(tmp_path, before=config_text(KEPT), after=THIRD))
    assert len(backups(config)) == KEPT + 1 + 1
    assert [other.read_text() for other in others] == ["mine", "mine"]


FILE = {"path": "m/config.pbtxt", "sha256_before": None, "sha256_after": None}
ENTRY = {"action": "apply", "at": "", "run_id": "r", "files": [FILE]}


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({**ENTRY, "files": [{**FILE, "sha256_before": 5}]}),
        json.dumps({**ENTRY, "files": [{**FILE, "sha256_after": "../../../../etc/passwd"}]}),
        json.dumps({**ENTRY, "run_id": ["r"]}),
        json.dumps({**ENTRY, "action": "remove"}),
        json.dumps({**ENTRY, "action": {}}),
        json.dumps({**ENTRY, "action": "done"}),
        json.dumps({**ENTRY, "files": []}),
        json.dumps({"action": "apply"}),
        "[" * 100_000 + "]" * 100_000,
        "[]",
        "9" * 5000,
        '"text"',
        "half a li",
        "",
        "\udcff\udcfe",
    ],
)
def test_a_damaged_journal_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    plan = make_plan(tmp_path)
    apply(plan)
    journal = journal_of(tmp_path)
    journal.write_bytes(journal.read_bytes() + line.encode("utf-8", "surrogateescape") + b"\n")
    with pytest.raises(EnvironmentNotReadyError, match="journal:3: "):
        rollback(tmp_path, "m")
    assert plan.path.read_bytes() == AFTER.encode()


@pytest.mark.parametrize("kind", ["link", "dead link", "pipe", "directory"])
def test_a_journal_that_is_no_file_is_not_written_to(tmp_path: Path, kind: str) -> None:
    plan = make_plan(tmp_path)
    victim = tmp_path / "victim"
    if kind == "link":
        victim.write_text("precious\n")
    journal = journal_of(tmp_path)
    if kind == "pipe":
        os.mkfifo(journal)
    elif kind == "directory":
        journal.mkdir()
    else:
        journal.symlink_to(victim)
    with pytest.raises(EnvironmentNotReadyError, match=str(journal)):
        apply(plan)
    assert plan.path.read_bytes() == BEFORE.encode()
    assert victim.exists() == (kind == "link")
    if kind == "link":
        assert victim.read_text() == "precious\n"


def test_a_backup_that_is_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    victim = tmp_path / "victim"
    victim.write_bytes(BEFORE.encode())
    backup = plan.path.with_name(f".config.pbtxt.tune.{sha256_of(BEFORE)[:16]}.bak")
    backup.symlink_to(victim)
    temporary = plan.path.with_name(".config.pbtxt.tune.tmp")
    temporary.symlink_to(victim)
    assert only(apply(plan)).backup == backup
    assert not backup.is_symlink()
    assert backup.read_bytes() == BEFORE.encode()
    assert victim.read_bytes() == BEFORE.encode()
    backup.unlink()
    backup.symlink_to(victim)
    with pytest.raises(EnvironmentNotReadyError, match="missing or damaged"):
        rollback(tmp_path, "m")


@pytest.mark.parametrize("model", ["../x/m", "m/../m", ".", "..", "m/", "/etc", ""])
def test_rollback_takes_a_models_name_only(tmp_path: Path, model: str) -> None:
    repository = tmp_path / "models"
    apply(make_plan(repository))
    plan = make_plan(tmp_path / "x")
    apply(plan)
    with pytest.raises(SpecError, match=f"'{model}'"):
        rollback(repository, model)
    assert plan.path.read_bytes() == AFTER.encode()
