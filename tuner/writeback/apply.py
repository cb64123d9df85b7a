"""Carries out a write plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.errors import SpecError, StalePlanError
from tuner.writeback.files import sha256_of_bytes, sha256_or_none
from tuner.writeback.journal import Action
from tuner.writeback.plan import FilePlan, WritePlan
from tuner.writeback.rollback import settle
from tuner.writeback.target import Target, target_of
from tuner.writeback.transaction import Replacement, commit, opened
from tuner.writeback.written import Written, unchanged

#: An empty config and none mean the same to Triton; older runs recorded one for the other.
_SAYS_NOTHING = (None, sha256_of_bytes(b""))


@dataclass(frozen=True)
class Preview:
    """What carrying out a plan would do now to one file.

    Attributes:
        diff: From that file as it is, as a unified diff; empty when it is the winner already.
        changes: The winner has another config than the run read.
    """

    target: Target
    diff: str
    changes: bool


def preview(plan: WritePlan, *, through_links: bool = False) -> tuple[Preview, ...]:
    """Checks the files of a plan; changes nothing.

    Raises:
        StalePlanError: One is neither the one the run read nor the winner itself.
        EnvironmentNotReadyError: One cannot be read, or lies outside the repository.
        SpecError: One is not a config of a model.
    """
    parts = _parts_of(plan, through_links=through_links)
    return tuple(_looked_at(plan, file, target) for file, target in parts)


def apply(plan: WritePlan, *, through_links: bool = False) -> Written:
    """Replaces the configs with the plan's, all or none, and records how to undo that.

    The order is what makes a crash harmless: backups, new files, journals, then the renames; all
    of each are on disk before the next begins.

    Args:
        through_links: Also where a config is a link to a file outside the repository.

    Raises:
        StalePlanError: A file is neither the one the run read nor the winner itself.
        EnvironmentNotReadyError: A directory cannot be written, another tune writes to it, or
            a file lies outside the repository.
        SpecError: The plan is about something else than configs of models.
    """
    parts = _parts_of(plan, through_links=through_links)
    settled = [settle(target, through_links=through_links) for _, target in parts]
    # Before anything is created; again below, where nobody else can write.
    for file, target in parts:
        _looked_at(plan, file, target)
    to_write = {target.real: (file, target) for file, target in parts if file.changes}
    with opened(target for _, target in to_write.values()) as locked:
        for file, target in parts:
            _looked_at(plan, file, target)
        replacements = [
            Replacement(found, file.content_after, like=found.target.real)
            for found, (file, _) in zip(locked, to_write.values(), strict=True)
            if found.content != file.content_after
        ]
        done = {f.real: f for f in commit(replacements, Action.APPLY, plan.run_id)}
    about = [part for part in parts if part[0].changes] or parts
    files = [done.get(t.real) or unchanged(t, file.sha256_after) for file, t in about]
    files.sort(key=lambda file: not file.changed)
    notes = (note for written in settled if written is not None for note in written.all_notes)
    return Written(tuple(files), plan.run_id, tuple(notes))


def _parts_of(plan: WritePlan, *, through_links: bool) -> list[tuple[FilePlan, Target]]:
    """Each file of a plan, and where it really is; two models may have one."""
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
                "give each model a file of its own",
            )
    return parts


def _looked_at(plan: WritePlan, file: FilePlan, target: Target) -> Preview:
    content = target.read()
    _check(plan, file, sha256_or_none(content))
    diff = file.diff((content or b"").decode(file.encoding))
    return Preview(target, diff, file.changes)


def _check(plan: WritePlan, file: FilePlan, found: str | None) -> None:
    if found in (file.sha256_before, file.sha256_after):
        return
    if found in _SAYS_NOTHING and file.sha256_before in _SAYS_NOTHING:
        return
    expected = _short(file.sha256_before)
    raise StalePlanError(
        f"{file.path} changed since run {plan.run_id} read it "
        f"(then {expected}, now {_short(found)}); nothing was written",
        "run `tune run` again on the new file, or put the old one back and apply again",
    )


def _short(sha256: str | None) -> str:
    return "no file" if sha256 is None else f"sha256 {sha256[:12]}"
