"""`tune doctor --noise`, and what later runs make of it, on a real server."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from e2e.conftest import MODEL, Workplace

from tuner.run.noise_file import write_noise
from tuner.steps.job import Request, prepare
from tuner.steps.rig import installed

pytestmark = [pytest.mark.e2e, pytest.mark.integration]

QUICKSTART = Path(__file__).parents[2] / "search_spaces" / "quickstart.yaml"


@pytest.mark.timeout(200)
def test_the_quickstarts_noise_is_measured_within_90_s_and_found_again(
    workplace: Workplace,
) -> None:
    spec = workplace.directory / "quickstart.yaml"
    spec.write_text(QUICKSTART.read_text().replace("../model_repository", "repository"))
    begin = time.monotonic()
    done = workplace.tune("doctor", "--noise", str(spec), "--format", "json")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 90.0
    noise = json.loads(done.stdout)
    assert noise["servers"] >= 3
    assert 0.0 < noise["capacity"]["cv"] < 0.5
    assert noise["p99_within"]["count"] == 4
    assert noise["advice"]["reasons"]
    (kept,) = (workplace.directory / "results" / "noise").glob(f"*-{MODEL}.json")
    assert json.loads(kept.read_text()) == noise

    noise["capacity"]["cv"] = 0.2  # too loud for any spec
    kept.write_text(json.dumps(noise))
    planned = workplace.tune("plan", str(spec))
    assert "repeats within 20.0%" in planned.stdout


def test_a_run_records_the_machines_noise_and_its_own(workplace: Workplace) -> None:
    spec = workplace.spec(trials=4)
    job = prepare(Request(spec=spec))
    with installed(job, os.environ) as programs:
        fingerprint = programs.fingerprint()
    recorded = {
        "fingerprint": fingerprint,
        "model": MODEL,
        "measured_at": "2025-03-01T10:00:00+00:00",
        "capacity": {"cv": 0.2, "count": 3},
    }
    write_noise(workplace.directory / "results", recorded)
    ran = workplace.tune("run", str(spec))
    assert ran.returncode == 0, ran.stderr
    assert "repeats within 20.0%" in ran.stderr
    manifest = json.loads((workplace.run / "manifest.json").read_text())
    assert manifest["noise"] == recorded
    own = workplace.result()["noise"]
    assert own["repeats"] >= 6
    assert own["throughput_cv"] is not None
