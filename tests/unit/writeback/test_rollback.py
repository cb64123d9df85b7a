from __future__ import annotations

from pathlib import Path

import pytest
from builders.plans import AFTER, BEFORE, make_plan, only

from tuner.errors import EnvironmentNotReadyError
from tuner.writeback.apply import apply
from tuner.writeback.journal import Action, Entry, locked_journal
from tuner.writeback.plan import WritePlan, sha256_of
from tuner.writeback.rollback import is_back, rollback


def applied(repository: Path, before: str | None = BEFORE) -> WritePlan:
    plan = make_plan(repository, before)
    apply(plan)
    return plan


@pytest.mark.parametrize("before", [BEFORE, None])
def test_the_second_time_nothing_changes(tmp_path: Path, before: str | None) -> None:
    plan = applied(tmp_path, before)
    first = only(rollback(tmp_path, "m"))
    assert first.sha256_after == (None if before is None else sha256_of(before))
    again = rollback(tmp_path, "m")
    assert not again.changed
    assert plan.path.exists() == (before is not None)


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


def test_can_be_applied_again_afterwards(tmp_path: Path) -> None:
    plan = applied(tmp_path)
    rollback(tmp_path, "m")
    assert apply(plan).changed
    assert plan.path.read_bytes() == AFTER.encode()
    assert rollback(tmp_path, "m").changed
    assert plan.path.read_bytes() == BEFORE.encode()


def test_takes_back_the_last_write_only(tmp_path: Path) -> None:
    applied(tmp_path)
    plan = make_plan(tmp_path, before=AFTER, after="third\n")
    apply(plan)
    back = only(rollback(tmp_path, "m"))
    assert (back.sha256_before, back.sha256_after) == (sha256_of("third\n"), sha256_of(AFTER))
    assert back.backup is not None
    assert back.backup.read_bytes() == b"third\n"
    assert plan.path.read_bytes() == AFTER.encode()
    assert not rollback(tmp_path, "m").changed


def test_a_model_never_written_is_explained_and_left_alone(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    with pytest.raises(EnvironmentNotReadyError, match="tune never wrote"):
        rollback(tmp_path, "m")
    assert {p.name for p in plan.path.parent.iterdir()} == {"1", "config.pbtxt"}


def test_a_damaged_backup_is_not_restored(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    backup = only(apply(plan)).backup
    backup.write_text("damaged")
    with pytest.raises(EnvironmentNotReadyError, match="missing or damaged"):
        rollback(tmp_path, "m")
    assert plan.path.read_bytes() == AFTER.encode()


def test_a_rollback_noted_but_never_made_is_finished(tmp_path: Path) -> None:
    plan = applied(tmp_path)
    with locked_journal(plan.path) as journal:
        journal.append(Entry(Action.ROLLBACK, "", "r1", sha256_of(AFTER), sha256_of(BEFORE)))
    assert rollback(tmp_path, "m").changed
    assert plan.path.read_bytes() == BEFORE.encode()
