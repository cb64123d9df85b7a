"""The sentences of runs, specs and writes, each told whole in a table of cases.

Each entry of `TOLD` is a file of `tests/golden/told`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from builders.golden import Golden
from builders.refusals import Case, told_of
from builders.told_endings import resumed_runs, stopped_runs
from builders.told_measuring import bottlenecks, fits, machine, measurements, no_baselines
from builders.told_resuming import not_resumed
from builders.told_rollbacks import not_taken_back
from builders.told_searching import searching
from builders.told_servers import not_deployed, not_served
from builders.told_spaces import drafts, no_spaces
from builders.told_specs import bad_texts, no_metrics, no_objectives, no_specs, other_specs
from builders.told_workers import not_joined
from builders.told_writes import no_plans, not_written, told_of_writes

TOLD: dict[str, Callable[[], dict[str, Case]]] = {
    "measurements": measurements,
    "memory-that-is-not-there": fits,
    "machine": machine,
    "bottlenecks": bottlenecks,
    "check-without-baseline": no_baselines,
    "run-stopped": stopped_runs,
    "run-resumed": resumed_runs,
    "run-not-resumed": not_resumed,
    "spec-not-read": no_specs,
    "spec-bad-texts": bad_texts,
    "spec-metrics": no_metrics,
    "spec-objectives": no_objectives,
    "spec-of-another-run": other_specs,
    "space-refused": no_spaces,
    "drafts": drafts,
    "server-not-deployed": not_deployed,
    "server-not-served": not_served,
    "worker-not-joined": not_joined,
    "searching": searching,
    "write-no-plan": no_plans,
    "write-refused": not_written,
    "write-not-taken-back": not_taken_back,
    "write-notes": told_of_writes,
}


@pytest.mark.parametrize("name", TOLD)
def test_every_case_is_told_as_it_was(
    name: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    golden(f"told/{name}", told_of(TOLD[name]()))


def test_every_table_is_still_made(golden: Golden) -> None:
    golden.names("told", TOLD)
