"""`tune run` to its end on a real tritonserver under a real perf_analyzer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from waits import TOO_TIGHT

from tuner.report.result_schema import check

pytestmark = [pytest.mark.e2e, pytest.mark.integration]


def test_a_better_config_is_found_proved_written_and_taken_back(workplace) -> None:  # type: ignore[no-untyped-def]
    before = workplace.config.read_bytes()
    done = workplace.tune("run", str(workplace.spec()))
    assert done.returncode == 0, done.stderr
    result = workplace.result()
    assert check(result) == []
    assert result["status"] == "improved"
    assert result["winner"]["fields"]["dynamic_batching"] is True
    assert result["improvement"]["goodput_ratio"]["low"] > 1.02
    (soak,) = result["winner"]["soak"]["tried"]
    assert soak["measurement"]["duration_s"] >= 3.0
    assert result["winner"]["goodput_infer_per_s"] == soak["measurement"]["throughput_infer_per_s"]
    assert "soak: 8 concurrent for 3 s: p99 " in done.stderr
    assert workplace.config.read_bytes() != before
    assert workplace.config.read_text() == result["config_after"]
    assert (workplace.run / "best" / "config.pbtxt").read_text() == result["config_after"]
    for name in ("report.html", "report.md", "junit.xml", "trials.csv", "study.db"):
        assert (workplace.run / name).stat().st_size > 0, name
    assert "improved" in done.stdout
    assert "improved" not in done.stderr.splitlines()[0]
    assert workplace.children() == []
    own = result["noise"]
    assert own["repeats"] >= 6
    assert own["throughput_cv"] is not None
    rejected = (
        (workplace.run / "rejected.jsonl").read_text().splitlines()
        if (workplace.run / "rejected.jsonl").exists()
        else []
    )
    assert result["rejected"]["count"] == len(rejected)

    again = workplace.tune("apply", str(workplace.run))
    assert again.returncode == 0
    assert "already there" in again.stdout
    back = workplace.tune("rollback", "emulated-accelerator", "--repository", "repository")
    assert back.returncode == 0, back.stderr
    assert workplace.config.read_bytes() == before


def test_every_second_is_accounted_for_and_stdout_is_json_when_asked(workplace) -> None:  # type: ignore[no-untyped-def]
    spec = str(workplace.spec(p90=TOO_TIGHT, trials=2))
    done = workplace.tune("run", spec, "--format", "json")
    assert done.returncode == 10, done.stderr
    printed = json.loads(done.stdout)
    assert printed == workplace.result()
    parts = sum(v for k, v in printed["time"].items() if k != "wall_s")
    assert parts == pytest.approx(printed["time"]["wall_s"], abs=0.01)
    assert printed["written"] is None


def test_when_nothing_meets_the_slo_nothing_is_written(workplace) -> None:  # type: ignore[no-untyped-def]
    before = workplace.config.read_bytes()
    done = workplace.tune("run", str(workplace.spec(p90=TOO_TIGHT, trials=2)))
    assert done.returncode == 10, done.stderr
    assert workplace.result()["status"] == "infeasible"
    assert workplace.config.read_bytes() == before
    assert "no config meets the SLOs" in done.stdout


def test_a_config_changed_meanwhile_is_not_overwritten(workplace) -> None:  # type: ignore[no-untyped-def]
    process = workplace.start("run", str(workplace.spec(trials=2)))
    workplace.wait_for_trials(1)
    edited = workplace.config.read_bytes() + b"\n# edited by somebody\n"
    workplace.config.write_bytes(edited)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 13, err
    assert workplace.config.read_bytes() == edited
    assert workplace.result()["status"] == "improved"
    assert workplace.result()["written"] is None
    refused = workplace.tune("apply", "--dry-run", str(workplace.run))
    assert refused.returncode == 13


def test_two_runs_with_one_seed_propose_the_same(workplace, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    runs = []
    for name in ("a", "b"):
        spec = str(workplace.spec(p90=TOO_TIGHT, trials=3))
        done = workplace.tune("run", spec, "--output", str(tmp_path / name))
        assert done.returncode == 10, done.stderr
        (trials,) = (tmp_path / name).glob("*/trials.jsonl")
        runs.append([json.loads(line)["candidate"] for line in trials.read_text().splitlines()])
    assert runs[0] == runs[1]
