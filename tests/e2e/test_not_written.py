"""`tune run`s that leave the config as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from waits import TOO_TIGHT

pytestmark = [pytest.mark.e2e, pytest.mark.integration]


def test_when_nothing_meets_the_slo_nothing_is_written_and_a_second_run_proposes_the_same(
    workplace, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    before = workplace.config.read_bytes()
    spec = str(workplace.spec(p90=TOO_TIGHT, trials=3))
    done = workplace.tune("run", spec, "--format", "json")
    assert done.returncode == 10, done.stderr
    printed = json.loads(done.stdout)
    assert printed == workplace.result()
    assert printed["status"] == "infeasible"
    assert printed["written"] is None
    parts = sum(v for k, v in printed["time"].items() if k != "wall_s")
    assert parts == pytest.approx(printed["time"]["wall_s"], abs=0.01)  # every second has its place

    again = workplace.tune("run", spec, "--output", str(tmp_path / "again"))
    assert again.returncode == 10, again.stderr
    assert "no config meets the SLOs" in again.stdout
    (path,) = (tmp_path / "again").glob("*/trials.jsonl")
    second = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(second) == 3
    assert [t["candidate"] for t in second] == [t["candidate"] for t in workplace.trials()]
    assert workplace.config.read_bytes() == before


def test_a_config_changed_meanwhile_is_not_overwritten(workplace) -> None:  # type: ignore[no-untyped-def]
    process = workplace.start("run", str(workplace.spec(trials=2)))
    workplace.wait_for_trials(1)
    edited = workplace.config.read_bytes() + b"\n# edited by somebody\n"
    workplace.config.write_bytes(edited)
    done = workplace.finish(process)
    assert done.returncode == 13, done.stderr
    assert workplace.config.read_bytes() == edited
    assert workplace.result()["status"] == "improved"
    assert workplace.result()["written"] is None
    refused = workplace.tune("apply", "--dry-run", str(workplace.run))
    assert refused.returncode == 13
