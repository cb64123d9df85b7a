from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tuner.errors import SpecError, TunerError
from tuner.report.check_report import HEADLINES, junit_of, markdown_of, next_steps, render_check
from tuner.report.check_schema import CheckFacts, CheckStatus, json_schema, read_check
from tuner.report.trend import trend

ROOT = Path(__file__).parents[3]
SLO = {
    "expression": "p99_latency <= 40ms", "value": 38_000.0, "verdict": "pass",
    "metric": "p99_latency", "bound": 40_000.0, "margin": 0.05,
}  # fmt: skip
RATIO = {"estimate": 0.9, "low": 0.89, "high": 0.91}


def row(number: int, ratio: dict[str, float] | None = None) -> dict[str, Any]:
    return {
        "run_id": f"r{number}", "checked_at": f"2025-03-0{number}T02:00:00+00:00",
        "status": "fine", "value": 2000.0 + number, "ratio": ratio, "config_sha256": "ab" * 32,
    }  # fmt: skip


def facts(status: CheckStatus = CheckStatus.FINE, **changes: Any) -> CheckFacts:
    data = {
        "schema_version": 1, "kind": "check", "run_id": "r2", "model": "<b>toy</b>",
        "checked_at": "2025-03-02T02:00:00+00:00", "status": status.value, "exit_code": 0,
        "reasons": ["a reason, <in> one sentence"], "spec_path": "a spec.yaml",
        "spec_sha256": "0" * 64, "config_sha256": "ab" * 32, "fingerprint": "f" * 16,
        "machine": "Toy CPU, 2 cores", "objective": "maximize goodput", "rounds": 3,
        "load": "about 2e+03/s", "level": 1990.0, "compared": "capacity",
        "values": [2000.0, 2010.0, 1990.0],
        "slo": [{"worst": SLO, "values": [37_000.0, 38_000.0, 36_000.0]}],
        "warn": 0.03, "fail": 0.05, "ratio": RATIO, "confidence": 0.95,
        "baseline": {
            "run_id": "r1", "accepted_at": "2025-03-01T02:00:00+00:00", "machine": "Toy CPU",
            "same_machine": True, "config_sha256": "cd" * 32, "values": [2200.0, 2210.0],
            "level": 2150.0,
        },
        "accepted": None, "history": [row(1), row(2, RATIO)], "seconds": 61.2, **changes,
    }  # fmt: skip
    return CheckFacts.model_validate(data)


def test_the_published_schema_is_the_one_in_the_code() -> None:
    """Else: write `tuner.report.check_schema.json_schema()` to docs/check.schema.json."""
    assert json.loads((ROOT / "docs" / "check.schema.json").read_text()) == json_schema()


def test_markdown_tells_slos_comparison_trend_and_what_next() -> None:
    text = markdown_of(facts(CheckStatus.REGRESSION))
    assert text.startswith("## &lt;b>toy&lt;/b>: regression\n\n- a reason, &lt;in> one sentence\n")
    assert "| met | p99_latency <= 40ms | 38 ms | 5 % left | 37 ms, 38 ms, 36 ms |" in text
    assert "| capacity, mean | 2,000/s | 2,205/s |" in text
    assert "| ratio | 0.900 (0.890 to 0.910) |" in text
    assert "| 2025-03-02 02:00 | 2,002/s | 0.900 (0.890 to 0.910) | fine | abababab |" in text
    assert "`tune run 'a spec.yaml' --no-write`" in text


def test_without_a_baseline_or_a_measurement_the_report_is_still_whole() -> None:
    alone = markdown_of(facts(CheckStatus.INCONCLUSIVE, baseline=None, ratio=None, history=[]))
    assert "| capacity, mean | 2,000/s |" in alone
    assert "--update-baseline" in alone
    broken = facts(
        CheckStatus.FAILED, values=[], slo=[], level=None, load=None, rounds=0, history=[]
    )
    assert "### SLOs" not in markdown_of(broken)
    assert "tune doctor" in markdown_of(broken)


def test_one_check_is_no_trend() -> None:
    assert trend(facts(history=[row(1)])) is None


@pytest.mark.parametrize("status", list(CheckStatus))
def test_every_end_has_a_headline_and_a_next_step(status: CheckStatus) -> None:
    assert HEADLINES[status]
    assert next_steps(facts(status))
    ET.fromstring(junit_of(facts(status)))


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (CheckStatus.FINE, None),
        (CheckStatus.WORSE, None),
        (CheckStatus.REGRESSION, "failure"),
        (CheckStatus.INCONCLUSIVE, "failure"),
        (CheckStatus.FAILED, "error"),
        (CheckStatus.MISSED, "skipped"),
    ],
)
def test_junit_has_a_case_for_the_regression(status: CheckStatus, problem: str | None) -> None:
    suite = ET.fromstring(junit_of(facts(status)))[0]
    assert suite.attrib["tests"] == "2"
    (case,) = (c for c in suite.findall("testcase") if c.attrib["name"] == "regression")
    assert [c.tag for c in case if c.tag != "system-out"] == ([problem] if problem else [])


def test_junit_fails_the_slo_that_is_missed() -> None:
    missed = {**SLO, "verdict": "fail", "value": 50_000.0, "margin": -0.25}
    check = facts(CheckStatus.MISSED, slo=[{"worst": missed, "values": [50_000.0]}])
    suite = ET.fromstring(junit_of(check))[0]
    assert suite.attrib["failures"] == "1"
    assert "missed by 25 %" in suite.findall("testcase")[0][0].attrib["message"]


def test_a_minimised_metric_is_told_in_its_unit() -> None:
    check = facts(compared="p99_latency", values=[31_000.0, 32_000.0, 31_500.0])
    assert "| p99_latency, mean | 31.5 ms |" in markdown_of(check)


def test_what_is_stored_can_be_rendered_again(tmp_path: Path) -> None:
    (tmp_path / "check.json").write_text(facts().model_dump_json())
    first = [p.read_bytes() for p in render_check(tmp_path)]
    assert [p.read_bytes() for p in render_check(tmp_path)] == first


def test_a_directory_that_is_no_check_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is not a check"):
        read_check(tmp_path)
    (tmp_path / "check.json").write_text('{"status": "good"}')
    with pytest.raises(TunerError, match="cannot be read"):
        read_check(tmp_path)
