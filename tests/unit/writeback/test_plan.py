"""Plans of writes: drawn up from runs, and of configs/NAME.pbtxt beside a config.pbtxt."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.messages_writes import NEW, OLD, RESULT, manifest, wrote
from builders.plans import AFTER, BEFORE, cut_short, make_file, make_plan, only

from tuner.errors import SpecError, StalePlanError
from tuner.record.manifest import KeptConfig
from tuner.writeback.apply import apply
from tuner.writeback.plan import WritePlan, file_plans, plan_from_run, sha256_of
from tuner.writeback.repository import half_written, repair
from tuner.writeback.rollback import is_back, rollback


def test_made_from_a_run() -> None:
    plan = plan_from_run(manifest(), RESULT)
    (file,) = plan.files
    assert file.path == Path("/repo/m/config.pbtxt")
    assert (file.text_before, file.text_after) == (OLD, NEW)
    assert file.sha256_before == sha256_of(OLD)
    assert file.sha256_after == sha256_of(NEW)
    assert plan.server_args == ("--x=1",)


def test_run_without_a_result_has_no_plan() -> None:
    with pytest.raises(SpecError, match="has no config to write: it left no result"):
        plan_from_run(manifest(), None)


def test_another_repository_may_be_named(tmp_path: Path) -> None:
    (file,) = plan_from_run(manifest(), RESULT, tmp_path).files
    assert file.path == tmp_path / "m" / "config.pbtxt"


def test_a_model_without_a_config_has_no_text_before() -> None:
    plan = plan_from_run(manifest("", None), RESULT)
    (file,) = plan.files
    assert file.text_before is None
    assert file.sha256_before is None
    assert file.diff().endswith("@@ -0,0 +1 @@\n+max_batch_size: 8\n\\ No newline at end of file\n")


def test_diff_shows_the_change_and_a_missing_last_newline(tmp_path: Path) -> None:
    diff = make_file(tmp_path, "m", before="a\nb\n", after="a\nc").diff()
    assert diff == (
        "--- a/m/config.pbtxt\n+++ b/m/config.pbtxt\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
        "\\ No newline at end of file\n"
    )


def test_a_run_that_was_written_already_is_a_plan_still() -> None:
    written = RESULT.model_copy(update={"written": wrote(sha256_of(NEW))})
    assert plan_from_run(manifest(), written).files[0].text_after == NEW


NAMED = "configs/a100.pbtxt"


def made(repository: Path, named: str | None = None) -> WritePlan:
    """A plan to write the file that is read in place of config.pbtxt, where there is one."""
    path = make_file(repository, "m").path
    text = BEFORE
    if named is not None:
        path, text = make_file(repository, "m", named, config=NAMED).path, named
    kept = KeptConfig("m", str(path), text, sha256_of(text), write_to=NAMED)
    return WritePlan(tuple(file_plans(kept, AFTER)), "r1")


def content(repository: Path, name: str = NAMED, model: str = "m") -> str | None:
    path = repository / model / name
    return path.read_bytes().decode() if path.exists() else None


@pytest.mark.parametrize("named", [None, "# of this machine\n"])
def test_named_config_is_written_beside_config_pbtxt_and_rolled_back(
    tmp_path: Path, named: str | None
) -> None:
    plan = made(tmp_path, named)
    assert [f.diff for f in apply(plan, dry_run=True).files][-1].startswith(f"--- a/m/{NAMED}\n")
    written = only(apply(plan))
    assert (written.path, content(tmp_path)) == (tmp_path / "m" / NAMED, AFTER)
    assert content(tmp_path, "config.pbtxt") == BEFORE
    assert "--model-config-name=a100" in written.notes[0]
    assert not apply(plan).changed
    facts = written.path, written.sha256_before, written.sha256_after
    assert not is_back(*facts)
    assert only(rollback(tmp_path, "m")).changed
    assert content(tmp_path) == named
    assert is_back(*facts)
    assert not rollback(tmp_path, "m").changed
    assert content(tmp_path, "config.pbtxt") == BEFORE


def test_a_config_that_it_was_made_of_and_changed_is_stale(tmp_path: Path) -> None:
    plan = made(tmp_path)
    (tmp_path / "m" / "config.pbtxt").write_text("max_batch_size: 2\n")
    with pytest.raises(StalePlanError, match=r"m/config\.pbtxt"):
        apply(plan)
    assert not (tmp_path / "m" / "configs").exists()


def test_a_file_that_came_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    plan = made(tmp_path)
    make_file(tmp_path, "m", "# somebody else's\n", config=NAMED)
    with pytest.raises(StalePlanError, match=r"a100\.pbtxt"):
        apply(plan)
    assert content(tmp_path) == "# somebody else's\n"


def test_a_winner_that_changes_nothing_makes_no_file(tmp_path: Path) -> None:
    (file,) = file_plans(KeptConfig("m", "/m/config.pbtxt", "", sha256_of(""), write_to=NAMED), "")
    assert not file.changes
    moved = file_plans(
        KeptConfig("m", f"/r/m/{NAMED}", "", sha256_of(""), write_to=NAMED), "x", tmp_path
    )
    assert [f.path for f in moved] == [tmp_path / "m" / NAMED]


def test_the_config_last_written_is_taken_back(tmp_path: Path) -> None:
    apply(make_plan(tmp_path))
    kept = KeptConfig(
        "m", str(tmp_path / "m" / "config.pbtxt"), AFTER, sha256_of(AFTER), write_to=NAMED
    )
    apply(WritePlan(tuple(file_plans(kept, "# named\n")), "r2"))
    assert only(rollback(tmp_path, "m")).path.name == "a100.pbtxt"
    assert only(rollback(tmp_path, "m", run_id="r1")).sha256_after == sha256_of(BEFORE)


@pytest.mark.parametrize("before", [None, BEFORE])
def test_of_several_a_write_cut_short_is_undone(tmp_path: Path, before: str | None) -> None:
    files = tuple(make_file(tmp_path, m, before, config=NAMED) for m in ("m", "n"))
    cut_short(WritePlan(files, "r1"), "n")
    assert half_written(tmp_path) is not None
    repaired = repair(tmp_path)
    assert repaired is not None
    assert repaired.run_id == "r1"
    assert [content(tmp_path, model=m) for m in ("m", "n")] == [before, before]
    apply(WritePlan(files, "r2"))
    assert rollback(tmp_path, "m").changed
    assert [content(tmp_path, model=m) for m in ("m", "n")] == [before, before]


@pytest.mark.parametrize(
    "forged", ["../n/config.pbtxt", "configs/.x.pbtxt", "configs/x/y.pbtxt", "1/model.py"]
)
def test_no_other_file_is_written(tmp_path: Path, forged: str) -> None:
    kept = KeptConfig(
        "m", str(make_file(tmp_path, "m").path), BEFORE, sha256_of(BEFORE), write_to=forged
    )
    with pytest.raises(SpecError, match="'m'"):
        apply(WritePlan(tuple(file_plans(kept, AFTER)), "r1"))
