"""Checks made up: nothing here was measured."""

from __future__ import annotations

from typing import Any

from tuner.record.checks import CheckFacts
from tuner.record.status import CheckStatus

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
            "key": {"model": "toy", "machine": "f", "perf_analyzer": "2", "question": {}},
            "run_id": "r1", "accepted_at": "2025-03-01T02:00:00+00:00", "machine": "Toy CPU",
            "config_sha256": "cd" * 32, "compared": "capacity", "values": [2200.0, 2210.0],
            "level": 2150.0, "expected": 2200.0, "arrivals": 7,
        },
        "accepted": None, "history": [row(1), row(2, RATIO)], "seconds": 61.2, **changes,
    }  # fmt: skip
    return CheckFacts.model_validate(data)


def nights() -> list[dict[str, Any]]:
    """Accepted at 2,000; good nights, one too noisy, a regression, and 1,800 accepted after it."""
    ratios = (None, 1.01, 0.99, 0.96, 1.0, 0.9, 0.91, 1.02, 0.99, 1.0)
    statuses = (
        "accepted", "fine", "fine", "inconclusive", "fine", "regression", "accepted", "fine",
        "fine", "slo missed",
    )  # fmt: skip
    rows = []
    for number, (ratio, status) in enumerate(zip(ratios, statuses, strict=True)):
        accepted = 2000.0 if number < 7 else 1820.0
        half = 0.05 if status == "inconclusive" else 0.015
        interval = ratio and {"estimate": ratio, "low": ratio - half, "high": ratio + half}
        checked = row(1, interval) | {"status": status, "value": accepted * (ratio or 1.0)}
        rows.append(checked | {"checked_at": f"2025-03-{number + 1:02d}T02:17:00+00:00"})
    return rows
