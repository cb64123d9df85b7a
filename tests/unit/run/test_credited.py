"""The load that the config in the repository is credited with."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from builders.candidates import the_one
from builders.soaked_runs import soaked_run

from tuner.run.checks import credited_level
from tuner.run.store import RunStore


def test_a_written_config_has_the_load_of_its_run_while_it_is_in_place(tmp_path: Path) -> None:
    run, soak = soaked_run(tmp_path, 0.9)
    then = RunStore.open(run).manifest()
    written = json.loads((run / "result.json").read_text())["written"]["sha256_after"]
    now = replace(then, models={"m": replace(the_one(then.models), sha256=written)})
    assert credited_level(tmp_path, now) == pytest.approx(soak.credited_level)
    assert credited_level(tmp_path, then) is None  # it was taken back
    assert credited_level(tmp_path, replace(now, fingerprint="another machine")) is None
    other = replace(now, spec={**now.spec, "slo": ["p99_latency <= 1ms"]})
    assert credited_level(tmp_path, other) is None
    shutil.copytree(run, tmp_path / run.name.replace("2", "3", 1))  # a newer run left a proposal
    newer = tmp_path / run.name.replace("2", "3", 1) / "result.json"
    newer.write_text(json.dumps(json.loads(newer.read_text()) | {"written": None}))
    assert credited_level(tmp_path, now) == pytest.approx(soak.credited_level)
    (run / "result.json").write_text("{")
    assert credited_level(tmp_path, now) is None


def test_a_kept_config_has_the_load_of_its_run(tmp_path: Path) -> None:
    run, soak = soaked_run(tmp_path, 0.9, "baseline")
    now = RunStore.open(run).manifest()
    assert credited_level(tmp_path, now) == pytest.approx(soak.credited_level)
