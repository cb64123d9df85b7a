"""The full messages that users read, in tables of cases.

Each entry of `MESSAGES` is a file of `tests/golden/messages`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import (
    messages_commands,
    messages_doctor,
    messages_jobs,
    messages_lint,
    messages_loads,
    messages_models,
    messages_runs,
)
from builders.golden import Golden
from builders.messages_checks import checks
from builders.messages_endings import noted_runs, plans, resumed_runs, stopped_runs
from builders.messages_measuring import bottlenecks, fits, machine, measurements, no_baselines
from builders.messages_probes import answers, failures, first_calls, overloads
from builders.messages_proofs import hindered, noted
from builders.messages_recordings import not_fitting_lines, not_made, not_read
from builders.messages_reports import not_reported, parts, trusted
from builders.messages_requests import carried, not_fitting, senders
from builders.messages_resuming import not_resumed
from builders.messages_rollbacks import not_rolled_back
from builders.messages_searching import searching
from builders.messages_servers import not_deployed, not_served
from builders.messages_spaces import drafts, no_spaces
from builders.messages_specs import bad_texts, no_metrics, no_objectives, no_specs
from builders.messages_views import watching
from builders.messages_writes import no_plans, not_written, write_notes
from builders.refusals import Case, messages_of

MESSAGES: dict[str, Callable[[], dict[str, Case]]] = {
    "answers": answers,
    "bottlenecks": bottlenecks,
    "check-without-baseline": no_baselines,
    "checks": checks,
    "commands-apply": messages_commands.not_applied,
    "commands-doctor": messages_doctor.findings,
    "commands-init": messages_commands.drafting,
    "commands-mistyped": messages_commands.command_mistakes,
    "commands-of-bad-specs": messages_commands.spec_mistakes,
    "commands-of-runs": messages_runs.named,
    "commands-record": messages_commands.recording,
    "configs-compared": messages_models.compared,
    "configs-refused": messages_models.refused,
    "drafts": drafts,
    "failures": failures,
    "first-calls": first_calls,
    "jobs-measured": messages_jobs.measuring,
    "jobs-refused": messages_jobs.refused,
    "lint-findings": messages_lint.findings,
    "loads-noted": messages_loads.noted,
    "loads-without-result": messages_loads.no_results,
    "machine": machine,
    "measurements": measurements,
    "missing-memory": fits,
    "models-not-read": messages_models.not_read,
    "models-not-served": messages_models.not_served,
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
    "run-notes": noted_runs,
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
    "write-not-rolled-back": not_rolled_back,
    "write-notes": write_notes,
    "write-refused": not_written,
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_are_unchanged(
    name: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    golden(f"messages/{name}", messages_of(MESSAGES[name]()))


def test_each_golden_file_has_a_table(golden: Golden) -> None:
    golden.names("messages", MESSAGES)
