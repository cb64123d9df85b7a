"""The sentences of loads, models and proofs, each told whole in a table of cases.

Each entry of `TOLD` is a file of `tests/golden/told-loads`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import told_commands, told_models
from builders.golden import Golden
from builders.refusals import Case, told_of
from builders.told_checks import checks
from builders.told_probes import answers, failures, first_calls, overloads
from builders.told_proofs import hindered
from builders.told_recordings import not_fitting_lines, not_made, not_read
from builders.told_requests import carried, not_fitting, senders

TOLD: dict[str, Callable[[], dict[str, Case]]] = {
    "answers": answers,
    "checks": checks,
    "commands-apply": told_commands.not_applied,
    "commands-init": told_commands.drafting,
    "commands-mistyped": told_commands.command_mistakes,
    "commands-of-bad-specs": told_commands.spec_mistakes,
    "commands-record": told_commands.recording,
    "configs-refused": told_models.refused,
    "failures": failures,
    "first-calls": first_calls,
    "models-not-read": told_models.not_read,
    "models-not-served": told_models.not_served,
    "overloads": overloads,
    "proofs-hindered": hindered,
    "recordings-not-fitting": not_fitting_lines,
    "recordings-not-made": not_made,
    "recordings-not-read": not_read,
    "requests-carry": carried,
    "requests-not-fitting": not_fitting,
    "requests-sent": senders,
}


@pytest.mark.parametrize("name", TOLD)
def test_every_case_is_told_as_it_was(
    name: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    golden(f"told-loads/{name}", told_of(TOLD[name]()))


def test_every_table_is_still_made(golden: Golden) -> None:
    golden.names("told-loads", TOLD)
