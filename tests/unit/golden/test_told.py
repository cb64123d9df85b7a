"""What users are told, whole, in tables of cases.

Each entry of `TOLD` is a file of `tests/golden/told`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import (
    told_commands,
    told_doctor,
    told_jobs,
    told_lint,
    told_loads,
    told_models,
    told_runs,
)
from builders.golden import Golden
from builders.refusals import Case, told_of
from builders.told_checks import checks
from builders.told_endings import noted_runs, plans, resumed_runs, stopped_runs
from builders.told_measuring import bottlenecks, fits, machine, measurements, no_baselines
from builders.told_probes import answers, failures, first_calls, overloads
from builders.told_proofs import hindered, noted
from builders.told_recordings import not_fitting_lines, not_made, not_read
from builders.told_reports import not_reported, parts, trusted
from builders.told_requests import carried, not_fitting, senders
from builders.told_resuming import not_resumed
from builders.told_rollbacks import not_taken_back
from builders.told_searching import searching
from builders.told_servers import not_deployed, not_served
from builders.told_spaces import drafts, no_spaces
from builders.told_specs import bad_texts, no_metrics, no_objectives, no_specs
from builders.told_views import watching
from builders.told_writes import no_plans, not_written, told_of_writes

TOLD: dict[str, Callable[[], dict[str, Case]]] = {
    "answers": answers,
    "bottlenecks": bottlenecks,
    "check-without-baseline": no_baselines,
    "checks": checks,
    "commands-apply": told_commands.not_applied,
    "commands-doctor": told_doctor.found,
    "commands-init": told_commands.drafting,
    "commands-mistyped": told_commands.command_mistakes,
    "commands-of-bad-specs": told_commands.spec_mistakes,
    "commands-of-runs": told_runs.named,
    "commands-record": told_commands.recording,
    "configs-compared": told_models.compared,
    "configs-refused": told_models.refused,
    "drafts": drafts,
    "failures": failures,
    "first-calls": first_calls,
    "jobs-measured": told_jobs.measuring,
    "jobs-refused": told_jobs.refused,
    "lint-found": told_lint.found,
    "loads-remarked": told_loads.remarked,
    "loads-without-result": told_loads.no_results,
    "machine": machine,
    "measurements": measurements,
    "memory-that-is-not-there": fits,
    "models-not-read": told_models.not_read,
    "models-not-served": told_models.not_served,
    "overloads": overloads,
    "plans": plans,
    "proofs-hindered": hindered,
    "proofs-noted": noted,
    "recordings-not-fitting": not_fitting_lines,
    "recordings-not-made": not_made,
    "recordings-not-read": not_read,
    "reports-by-part": parts,
    "reports-of-nothing": not_reported,
    "reports-trusted": trusted,
    "requests-carry": carried,
    "requests-not-fitting": not_fitting,
    "requests-sent": senders,
    "run-not-resumed": not_resumed,
    "run-resumed": resumed_runs,
    "run-stopped": stopped_runs,
    "run-told": noted_runs,
    "searching": searching,
    "server-not-deployed": not_deployed,
    "server-not-served": not_served,
    "space-refused": no_spaces,
    "spec-bad-texts": bad_texts,
    "spec-metrics": no_metrics,
    "spec-not-read": no_specs,
    "spec-objectives": no_objectives,
    "watching": watching,
    "write-no-plan": no_plans,
    "write-not-taken-back": not_taken_back,
    "write-notes": told_of_writes,
    "write-refused": not_written,
}


@pytest.mark.parametrize("name", TOLD)
def test_every_case_is_told_as_it_was(
    name: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    golden(f"told/{name}", told_of(TOLD[name]()))


def test_every_table_is_still_made(golden: Golden) -> None:
    golden.names("told", TOLD)
