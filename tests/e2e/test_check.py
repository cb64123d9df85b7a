"""The nightly on a real server: accepted, clean, then worse on purpose, then an SLO too tight."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders.e2e_workplace import MODEL, Workplace

from tuner.record.checks import CheckFacts

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.measuring]

#: Closed clients at one load are the quickest to measure. The limits are wider than usual:
#: windows are short here, and the test may share its machine.
CHECK = "check: {warn: 10%, fail: 20%, rounds: 6}\n"


def write_spec(workplace: Workplace, p90: str = "150ms") -> str:
    path = workplace.spec(p90=p90)
    path.write_text(path.read_text() + CHECK)
    return str(path)


def checked(workplace: Workplace, *arguments: str) -> tuple[int, dict[str, Any], str]:
    done = workplace.tune("check", *arguments, "--format", "json")
    assert done.stdout, done.stderr
    facts = json.loads(done.stdout)
    CheckFacts.model_validate(facts)
    directory = workplace.directory / "results" / facts["run_id"]
    assert json.loads((directory / "check.json").read_text()) == facts
    for name in ("report.md", "junit.xml", "manifest.json", "confirmation.jsonl"):
        assert (directory / name).stat().st_size > 0, name
    assert facts["exit_code"] == done.returncode
    return done.returncode, facts, done.stderr


def test_clean_then_a_regression_then_an_slo_too_tight(workplace: Workplace) -> None:
    spec = write_spec(workplace)
    before = workplace.config.read_bytes()
    code, first, _ = checked(workplace, spec, "--update-baseline")
    assert (code, first["status"]) == (0, "accepted")
    assert len(first["values"]) == 6
    (baseline,) = (workplace.directory / "results" / "baselines").glob(f"{MODEL}-*[0-9a-f].json")
    assert json.loads(baseline.read_text())["run_id"] == first["run_id"]

    code, clean, _ = checked(workplace, spec)
    assert (code, clean["status"]) == (0, "fine"), clean["reasons"]
    assert clean["baseline"]["run_id"] == first["run_id"]
    assert clean["ratio"]["low"] > 0.8

    worse = before.replace(b'string_value: "4"', b'string_value: "9"')  # the device's base cost
    assert worse != before
    workplace.config.write_bytes(worse)
    code, regression, _ = checked(workplace, spec)
    assert (code, regression["status"]) == (12, "regression"), regression["reasons"]
    assert regression["ratio"]["high"] < 0.8
    assert [row["status"] for row in regression["history"]] == ["accepted", "fine", "regression"]

    tight = write_spec(workplace, p90="5ms")
    code, missed, _ = checked(workplace, tight)
    assert (code, missed["status"]) == (10, "slo missed"), missed["reasons"]
    assert "was missed" in missed["reasons"][0]
    assert workplace.config.read_bytes() == worse  # a check writes nothing
    assert workplace.children() == []
