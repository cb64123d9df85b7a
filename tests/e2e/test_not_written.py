"""A `tune run` that leaves the config as it is."""

from __future__ import annotations

import json

import pytest
from builders.waits import TOO_TIGHT

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.long]


def test_when_nothing_meets_the_slo_nothing_is_written(workplace) -> None:  # type: ignore[no-untyped-def]
    before = workplace.config.read_bytes()
    done = workplace.tune("run", str(workplace.spec(p90=TOO_TIGHT, trials=3)), "--format", "json")
    assert done.returncode == 10, done.stderr
    printed = json.loads(done.stdout)
    assert printed == workplace.result()
    assert printed["status"] == "infeasible"
    assert printed["written"] is None
    parts = sum(v for k, v in printed["time"].items() if k != "wall_s")
    assert parts == pytest.approx(printed["time"]["wall_s"], abs=0.01)  # every second has its place
    assert len(workplace.trials()) == 3
    assert workplace.config.read_bytes() == before
    assert workplace.children() == []
