"""Carries out a write plan."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.errors import StalePlanError
from tuner.writeback.files import explained, replace_file, sha256_of_bytes, sha256_or_none
from tuner.writeback.journal import Action, Entry, Journal, locked_journal, utc_now
from tuner.writeback.plan import WritePlan
from tuner.writeback.target import Target, target_of

#: An empty config and none say the same to Triton; runs once stated the one for the other.
_SAYS_NOTHING = (None, sha256_of_bytes(b""))


@dataclass(frozen=True)
class Written:
    """What a write or a rollback did.

    Attributes:
        path: The config.pbtxt.
        real: The file itself, where that is a link.
        sha256_before: Of the file replaced; ``None`` when there was none.
        sha256_after: Of the file now there; ``None`` when it was removed.
        backup: Copy of the file replaced; ``None`` when there was none.
        run_id: The run whose winner was written, or taken back.
        changed: False when the file already was what was asked for.
        notes: What the user should know of it, one sentence each.
    """

    path: Path
    real: Path
    sha256_before: str | None
    sha256_after: str | None
    backup: Path | None
    run_id: str
    changed: bool
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """``written`` of `result.json`."""
        return {
            "path": str(self.path),
            "sha256_before": self.sha256_before,
            "sha256_after": self.sha256_after,
            "backup": None if self.backup is None else str(self.backup),
        }


@dataclass(frozen=True)
class Preview:
    """What carrying out a plan would do now.

    Attributes:
        target: The file it would write.
        diff: From that file as it is, as a unified diff; empty when it is the winner already.
    """

    target: Target
    diff: str


def preview(plan: WritePlan, *, through_links: bool = False) -> Preview:
    """Looks at the file a plan is about, and changes nothing.

    Raises:
        StalePlanError: It is neither the one the run read nor the winner itself.
        EnvironmentNotReadyError: It cannot be read, or lies outside the repository.
        SpecError: It is no config of a model.
    """
    target = target_of(plan.path, plan.model, through_links=through_links)
    content = target.read()
    _check(plan, sha256_or_none(content))
    return Preview(target, plan.diff((content or b"").decode(plan.encoding)))


def apply(plan: WritePlan, *, through_links: bool = False) -> Written:
    """Replaces the config by the plan's, after noting in the journal how to take it back.

    The order is what makes a crash harmless: backup, journal, then the rename; each is on disk
    before the next begins.

    Args:
        plan: What to write, and over what.
        through_links: Also where the config is a link to a file outside the repository.

    Raises:
        StalePlanError: The file is neither the one the run read nor the winner itself.
        EnvironmentNotReadyError: The directory cannot be written, another tune writes to it, or
            the file lies outside the repository.
        SpecError: The plan is about something else than a config of a model.
    """
    # Before anything is created; again below, where nobody else can write.
    target = preview(plan, through_links=through_links).target
    with locked_journal(target.real) as journal, explained(plan.path):
        content = target.read()
        found = sha256_or_none(content)
        _check(plan, found)
        entry = Entry(Action.APPLY, utc_now(), plan.run_id, found, plan.sha256_after)
        if found == plan.sha256_after:
            return written_of(target, entry, None, changed=False)
        backup = None if content is None else journal.keep(content)
        journal.append(entry)
        notes = replace_file(target.real, plan.content_after, like=target.real)
        _note_done(journal, entry)
        journal.prune()
    return written_of(target, entry, backup, notes=(*journal.notes, *notes))


def written_of(
    target: Target,
    entry: Entry,
    backup: Path | None,
    *,
    changed: bool = True,
    notes: tuple[str, ...] = (),
) -> Written:
    """What was done, as its entry in the journal has it."""
    return Written(
        path=target.path,
        real=target.real,
        sha256_before=entry.sha256_before,
        sha256_after=entry.sha256_after,
        backup=backup,
        run_id=entry.run_id,
        changed=changed,
        notes=(*target.notes, *notes) if changed else (),
    )


def _note_done(journal: Journal, entry: Entry) -> None:
    """It only matters should the file be put back by hand, so it may fail."""
    with contextlib.suppress(OSError):
        journal.append(replace(entry, action=Action.DONE))


def _check(plan: WritePlan, found: str | None) -> None:
    if found in (plan.sha256_before, plan.sha256_after):
        return
    if found in _SAYS_NOTHING and plan.sha256_before in _SAYS_NOTHING:
        return
    expected = _short(plan.sha256_before)
    raise StalePlanError(
        f"{plan.path} changed since run {plan.run_id} read it "
        f"(then {expected}, now {_short(found)}); nothing was written",
        "run `tune run` again on the new file, or put the old one back and apply again",
    )


def _short(sha256: str | None) -> str:
    return "no file" if sha256 is None else f"sha256 {sha256[:12]}"
