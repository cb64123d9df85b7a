"""`tune run` to its end on a real tritonserver under a real perf_analyzer."""

from __future__ import annotations

import pytest
from builders.candidates import the_one

from tuner.record.result_schema import check

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.measuring]


def test_a_better_config_is_found_proved_written_and_taken_back(workplace) -> None:  # type: ignore[no-untyped-def]
    before = workplace.config.read_bytes()
    done = workplace.tune("run", str(workplace.spec()))
    assert done.returncode == 0, done.stderr
    result = workplace.result()
    assert check(result) == []
    assert result["status"] == "improved"
    assert the_one(result["winner"]["candidate"]["models"])["dynamic_batching"] is True
    assert result["gain"]["ratio"]["low"] > 1.02
    (soak,) = result["winner"]["soak"]["tried"]
    assert soak["measurement"]["duration_s"] >= 3.0
    assert result["winner"]["credited_infer_per_s"] == soak["measurement"]["throughput_infer_per_s"]
    assert "soak: 8 concurrent for 3 s: p99 " in done.stderr
    assert workplace.config.read_bytes() != before
    after = the_one(result["models"])["config_after"]
    assert workplace.config.read_text() == after
    assert [p.read_text() for p in (workplace.run / "best").glob("*/config.pbtxt")] == [after]
    for name in ("report.html", "report.md", "junit.xml", "trials.csv", "study.db"):
        assert (workplace.run / name).stat().st_size > 0, name
    assert "Better: " in done.stdout
    assert "Better" not in done.stderr.splitlines()[0]
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


def test_a_winner_is_written_to_the_config_of_its_hardware(workplace) -> None:  # type: ignore[no-untyped-def]
    before = workplace.config.read_bytes()
    spec = workplace.spec(trials=2)
    spec.write_text("write_to: configs/a100.pbtxt\n" + spec.read_text())
    done = workplace.tune("run", str(spec))
    assert done.returncode == 0, done.stderr
    named = workplace.config.parent / "configs" / "a100.pbtxt"
    (model,) = workplace.result()["models"].values()
    assert named.read_text() == model["config_after"] != before.decode()
    assert workplace.config.read_bytes() == before
    assert "--model-config-name=a100" in done.stdout + done.stderr

    back = workplace.tune("rollback", str(workplace.run))
    assert back.returncode == 0, back.stderr
    assert not named.exists()
    assert workplace.config.read_bytes() == before
