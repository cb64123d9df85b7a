"""`tune run` of several specs on Ray, with emulated measurements, in processes of its own."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from builders.on_ray import left_over, start
from builders.series import make_specs, runs_of, series_in
from builders.waits import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long]


def specs_in(place: Path, count: int) -> list[str]:
    """One CPU each, in turns."""
    names = make_specs(place, count)
    usable = sorted(os.sched_getaffinity(0))
    for number, name in enumerate(names):
        cpu = usable[number % len(usable)]
        with (place / "specs" / f"{name}.yaml").open("a") as spec:
            spec.write(f"server: {{cpus: [{cpu}]}}\nworkload: {{cpus: [{cpu}]}}\n")
    return names


def manifests(place: Path) -> list[dict[str, Any]]:
    paths = sorted((place / "results").glob("*/manifest.json"))
    return [json.loads(path.read_text()) for path in paths]


def test_each_spec_is_tuned_once_on_separate_cpus_with_one_summary(tmp_path: Path) -> None:
    names = specs_in(tmp_path, 3)
    out, err = start(tmp_path, "specs/*.yaml", "--format", "json").communicate(timeout=300)
    summary = json.loads(out)
    assert [r["name"] for r in summary["runs"]] == names == runs_of(tmp_path / "results")
    assert {r["status"] for r in summary["runs"]} <= {"improved", "kept"}
    for number, name in enumerate(names, 1):
        assert f"{number} of 3: {name}, specs/{name}.yaml, on {os.uname().nodename}, CPU" in err
        assert f"{name}: 2/2 trials, best " in err
    assert "ray::" not in err
    assert "Ray" not in err
    assert "disturbs" not in err
    directory = series_in(tmp_path / "results")
    assert (directory / "report.html").is_file()
    assert json.loads((directory / "series.json").read_text())["choices"]["on"] == "ray"
    wait_until(lambda: not left_over(tmp_path), 60)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_series_leaves_no_process_and_goes_on(tmp_path: Path, number: int) -> None:
    names, results = specs_in(tmp_path, 2), tmp_path / "results"
    process = start(tmp_path, "specs/*.yaml", pause_s=0.3)
    wait_until(lambda: any(results.glob("*/trials.jsonl")), 120)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert out == ""
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130
        assert "go on with: tune run specs/model-00.yaml" in err
    wait_until(lambda: not left_over(tmp_path), 60)
    before = {p.parent.name: p.read_text() for p in results.glob("*/trials.jsonl")}
    directory = series_in(results)
    resumed = start(tmp_path, "--resume", str(directory), "--format", "json")
    out, err = resumed.communicate(timeout=300)
    assert {r["status"] for r in json.loads(out)["runs"]} <= {"improved", "kept"}, err
    assert runs_of(results) == names
    after = {p.parent.name: p.read_text() for p in results.glob("*/trials.jsonl")}
    assert all(after[name].startswith(text) for name, text in before.items())
