"""`tune doctor --noise`, and what later runs make of it, on a real server."""

from __future__ import annotations

import json

import pytest
from e2e.conftest import MODEL, Workplace

pytestmark = [pytest.mark.e2e, pytest.mark.integration]


def test_noise_is_measured_kept_and_found_by_plan_and_run(workplace: Workplace) -> None:
    spec = str(workplace.spec(trials=1))
    done = workplace.tune("doctor", "--noise", spec, "--format", "json")
    assert done.returncode == 0, done.stderr
    noise = json.loads(done.stdout)
    assert noise["servers"] >= 3
    assert 0.0 < noise["capacity"]["cv"] < 0.5
    assert noise["p99_within"]["count"] >= 2
    assert noise["comparison"]["count"] >= 3, noise["neighbour"]
    assert noise["advice"]["reasons"]
    (kept,) = (workplace.directory / "results" / "noise").glob(f"*-{MODEL}.json")
    assert json.loads(kept.read_text()) == noise

    noise["comparison"]["cv"] = 0.2  # too loud for any spec
    kept.write_text(json.dumps(noise))
    planned = workplace.tune("plan", spec)
    assert "varies by 20.0%" in planned.stdout
    ran = workplace.tune("run", spec)
    assert ran.returncode == 3, ran.stderr  # one trial compares nothing; what it says is enough
    assert "varies by 20.0%" in ran.stderr
    assert json.loads((workplace.run / "manifest.json").read_text())["noise"] == noise
