"""A winner in configs/NAME.pbtxt, beside a config.pbtxt that stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.plans import AFTER, BEFORE, cut_short, make_file, make_plan, only

from tuner.errors import SpecError, StalePlanError
from tuner.run.manifest import KeptConfig
from tuner.writeback.plan import WritePlan, apply, file_plans, preview, sha256_of
from tuner.writeback.rollback import half_written, is_back, rollback, settle_all

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
def test_it_is_written_beside_and_taken_back(tmp_path: Path, named: str | None) -> None:
    plan = made(tmp_path, named)
    assert [p.diff for p in preview(plan)][-1].startswith(f"--- a/m/{NAMED}\n")
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
    with pytest.raises(StalePlanError, match=r"m/config\.pbtxt changed since"):
        apply(plan)
    assert not (tmp_path / "m" / "configs").exists()


def test_a_file_that_came_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    plan = made(tmp_path)
    make_file(tmp_path, "m", "# somebody else's\n", config=NAMED)
    with pytest.raises(StalePlanError, match=r"a100\.pbtxt changed since"):
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
    (told,) = half_written(tmp_path).values()
    assert "only n with the winner" in told.message
    assert [w.run_id for w in settle_all(tmp_path)] == ["r1"]
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
    with pytest.raises(SpecError, match="is not a config of a model 'm'"):
        apply(WritePlan(tuple(file_plans(kept, AFTER)), "r1"))
