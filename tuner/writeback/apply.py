"""Carries out a write plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import StalePlanError
from tuner.writeback.files import explained, read_bytes, replace_file, sha256_or_none
from tuner.writeback.journal import Entry, locked_journal, utc_now
from tuner.writeback.plan import WritePlan


@dataclass(frozen=True)
class Written:
    """What a write or a rollback did.

    Attributes:
        path: The config.pbtxt.
        sha256_before: Of the file replaced; ``None`` when there was none.
        sha256_after: Of the file now there; ``None`` when it was removed.
        backup: Copy of the file replaced; ``None`` when there was none.
        run_id: The run whose winner was written, or taken back.
        changed: False when the file already was what was asked for.
    """

    path: Path
    sha256_before: str | None
    sha256_after: str | None
    backup: Path | None
    run_id: str
    changed: bool = True

    def to_json(self) -> dict[str, Any]:
        """``written`` of `result.json`."""
        return {
            "path": str(self.path),
            "sha256_before": self.sha256_before,
            "sha256_after": self.sha256_after,
            "backup": None if self.backup is None else str(self.backup),
        }


def check_fresh(plan: WritePlan) -> None:
    """Raises StalePlanError unless the file is the one the run read, or already the winner."""
    with explained(plan.path):
        content = read_bytes(plan.path)
    _check(plan, sha256_or_none(content))


def apply(plan: WritePlan) -> Written:
    """Replaces the config by the plan's, after noting in the journal how to take it back.

    The order is what makes a crash harmless: backup, journal, then the rename; each is on disk
    before the next begins.

    Raises:
        StalePlanError: The file is neither the one the run read nor the winner itself.
        EnvironmentNotReadyError: The directory cannot be written, or another tune writes to it.
    """
    check_fresh(plan)  # before anything is created; again below, where nobody else can write
    with locked_journal(plan.path.parent) as journal, explained(plan.path):
        content = read_bytes(plan.path)
        found = sha256_or_none(content)
        _check(plan, found)
        if found == plan.sha256_after:
            return Written(plan.path, found, found, None, plan.run_id, changed=False)
        backup = None if content is None else journal.keep(content)
        journal.append(Entry("apply", utc_now(), plan.run_id, found, plan.sha256_after))
        replace_file(plan.path, plan.text_after.encode("utf-8"))
    return Written(plan.path, found, plan.sha256_after, backup, plan.run_id)


def _check(plan: WritePlan, found: str | None) -> None:
    if found in (plan.sha256_before, plan.sha256_after):
        return
    expected = _short(plan.sha256_before)
    raise StalePlanError(
        f"{plan.path} changed since run {plan.run_id} read it "
        f"(then {expected}, now {_short(found)}); nothing was written",
        "run `tune run` again on the new file, or put the old one back and apply again",
    )


def _short(sha256: str | None) -> str:
    return "no file" if sha256 is None else f"sha256 {sha256[:12]}"
