"""Tables and sentences that are not behind a chart, and the numbers in them."""

from __future__ import annotations

import pytest
from builders.pages import Made, with_configs

from tuner.report.quantities import latency_text, margin_text, result_text
from tuner.report.tables import comparison
from tuner.score.judge import SloResult, Verdict


@pytest.mark.parametrize(
    ("value_us", "text"),
    [(39_000.0, "39 ms"), (40_000.0, "40 ms"), (40_037.0, "40.04 ms"), (39_990.0, "39.99 ms")],
)
def test_value_near_the_bound_is_printed_unlike_the_bound(value_us: float, text: str) -> None:
    slo = "p99_latency <= 40ms"
    assert result_text(SloResult(slo, "p99_latency", 40e3, value_us, Verdict.FAIL, 0.0)) == text


def test_without_a_current_config_to_show_no_row_is_longer_than_the_table(made: Made) -> None:
    data = made("improved")
    table = comparison(with_configs(data, current=None))
    assert table is not None
    assert {len(row) for row in table.rows} == {len(table.headers)} == {2}
    both = comparison(data)
    assert both is not None
    assert {len(row) for row in both.rows} == {3}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (30_000.0, "25% left"),
        (60_000.0, "missed by 50%"),
        (82_840_000.0, "2,071 times the bound"),
    ],
)
def test_bound_missed_by_far_is_reported_as_a_multiple(value: float, text: str) -> None:
    bound = 40_000.0
    margin = (bound - value) / bound
    verdict = Verdict.PASS if margin >= 0 else Verdict.FAIL
    slo = SloResult("p99_latency <= 40ms", "p99_latency", bound, value, verdict, margin)
    assert margin_text(slo) == text


def test_latencies_have_no_exponent() -> None:
    assert latency_text(5_000_000_000.0) == "5,000 s"
