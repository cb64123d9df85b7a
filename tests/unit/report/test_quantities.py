from __future__ import annotations

import pytest

from tuner.report.quantities import latency_text, margin_text
from tuner.score.judge import SloResult, Verdict


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (30_000.0, "25% left"),
        (60_000.0, "missed by 50%"),
        (82_840_000.0, "2071 times the bound"),
    ],
)
def test_a_bound_missed_many_times_over_is_told_as_a_multiple(value: float, text: str) -> None:
    bound = 40_000.0
    margin = (bound - value) / bound
    verdict = Verdict.PASS if margin >= 0 else Verdict.FAIL
    slo = SloResult("p99_latency <= 40ms", "p99_latency", bound, value, verdict, margin)
    assert margin_text(slo) == text


def test_latencies_have_no_exponent() -> None:
    assert latency_text(5_000_000_000.0) == "5000 s"
