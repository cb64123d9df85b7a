"""Carries out the plan of a write: all of its files are written, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tuner.errors import SpecError, StalePlanError
from tuner.writeback.files import sha256_or_none
from tuner.writeback.journal import Action
from tuner.writeback.plan import FilePlan, WritePlan
from tuner.writeback.repository import (
    OpenRepository,
    open_repository,
    refuse_unwritable_files,
    repair,
)
from tuner.writeback.target import Target, Written, WrittenFile, replaced, target_of, unchanged
from tuner.writeback.transaction import Replacement, commit


def apply(plan: WritePlan, *, through_links: bool = False, dry_run: bool = False) -> Written:
    """Replaces the configs with the plan's, all or none, and records how to undo that.

    Args:
        through_links: Also write a config that is a link to a file outside the repository.
        dry_run: Change nothing, and return what would be done.

    Raises:
        StalePlanError: A file is neither the one that the run read nor the winner itself.
        EnvironmentNotReadyError: A directory cannot be written, another tune writes to it, or
            a file lies outside the repository.
        SpecError: The plan has files other than configs of models.
    """
    parts = _parts_of(plan, through_links=through_links)
    if dry_run:
        expected = [_would_be(plan, *part) for part in parts]
        if any(file.changes for file, _ in parts):
            changed = [t for (_, t), file in zip(parts, expected, strict=True) if file.changed]
            refuse_unwritable_files(plan.repository, changed)
        return Written(tuple(expected), plan.run_id)
    repaired = repair(plan.repository, through_links=through_links)
    notes = () if repaired is None else repaired.all_notes
    # A check before anything is created; the check below is safe from other tunes.
    for file, target in parts:
        _refuse_stale(plan, file, target.read())
    done: dict[Path, WrittenFile] = {}
    if any(file.changes for file, _ in parts):
        with open_repository(plan.repository, through_links=through_links) as opened:
            done = _write(plan, parts, opened)
            notes = (*notes, *opened.journal.notes)
    about = [part for part in parts if part[0].changes] or parts
    files = [done.get(t.real) or unchanged(t, file.sha256_after) for file, t in about]
    files.sort(key=lambda file: not file.changed)
    return Written(tuple(files), plan.run_id, notes)


def _write(
    plan: WritePlan, parts: Sequence[tuple[FilePlan, Target]], opened: OpenRepository
) -> dict[Path, WrittenFile]:
    """Files that were written, by their real paths."""
    states = [(file, opened.find(target)) for file, target in parts]
    for file, there in states:
        _refuse_stale(plan, file, there.content)
    to_write = {there.target.real: (file, there) for file, there in states if file.changes}
    replacements = [
        Replacement(there, file.content_after, like=there.target.real)
        for file, there in to_write.values()
        if there.content != file.content_after
    ]
    return {f.real: f for f in commit(opened, replacements, Action.APPLY, plan.run_id)}


def _parts_of(plan: WritePlan, *, through_links: bool) -> list[tuple[FilePlan, Target]]:
    """Each file of a plan with its real path; two models may share one."""
    parts = []
    first: dict[Path, FilePlan] = {}
    for file in plan.files:
        target = target_of(file.path, file.model, through_links=through_links)
        parts.append((file, target))
        other = first.setdefault(target.real, file)
        if other.content_after != file.content_after:
            raise SpecError(
                f"{other.path} and {file.path} are the same file, but the winner has a different "
                "config for each; nothing was written",
                "give each model a separate file",
            )
    return parts


def _would_be(plan: WritePlan, file: FilePlan, target: Target) -> WrittenFile:
    content = target.read()
    _refuse_stale(plan, file, content)
    if content == file.content_after or not file.changes:
        return replace(unchanged(target, file.sha256_after), notes=target.notes)
    return replaced(target, content, file.content_after, None)


def _refuse_stale(plan: WritePlan, file: FilePlan, content: bytes | None) -> None:
    sha256 = sha256_or_none(content)
    if sha256 not in (file.sha256_before, file.sha256_after):
        raise StalePlanError(
            f"{file.path} changed since run {plan.run_id} read it "
            f"(then {_short(file.sha256_before)}, now {_short(sha256)}); nothing was written",
            "run `tune run` again on the new file, or restore the old file and apply again",
        )


def _short(sha256: str | None) -> str:
    return "no file" if sha256 is None else f"sha256 {sha256[:12]}"
