"""Tables and sentences that are not behind a chart, and the numbers in them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.pages import Made, told

from tuner.measurement.measurement import FailureReason, Failures
from tuner.record.confirmation import ChangeUndone, RunNoise
from tuner.record.proved import ProvedConfig
from tuner.report.quantities import found_text, latency_text, margin_text
from tuner.report.tables import comparison, noise_sentences, simplification
from tuner.score.judge import SloResult, Verdict


def test_noise_of_this_run_is_told(made: Made) -> None:
    data = made()
    assert noise_sentences(data) == []
    found = RunNoise(repeats=9, throughput_cv=0.011, p99_cv=None, rounds=6, capacity_cv=0.02)
    (here,) = noise_sentences(told(data, noise=found))
    assert here.endswith("(coefficient of variation): throughput 1.1%, capacity 2%.")


def test_a_field_without_which_no_load_was_stood_says_so(made: Made) -> None:
    row = ChangeUndone("dynamic_batching", 900.0, 0.0, -900.0, kept=True)
    table = simplification(told(made(), simplification=(row,)))
    assert table is not None
    assert table.rows == (("dynamic_batching", "900/s", "misses an SLO", "-900/s", "-", "kept"),)


@pytest.mark.parametrize(
    ("found_us", "text"),
    [(39_000.0, "39 ms"), (40_000.0, "40 ms"), (40_037.0, "40.037 ms"), (39_990.0, "39.99 ms")],
)
def test_what_is_not_the_bound_does_not_read_like_it(found_us: float, text: str) -> None:
    slo = "p99_latency <= 40ms"
    assert found_text(SloResult(slo, "p99_latency", 40e3, found_us, Verdict.FAIL, 0.0)) == text


def test_without_a_current_config_to_show_no_row_is_longer_than_the_table(made: Made) -> None:
    data = made("improved")
    table = comparison(replace(data, current=None))
    assert table is not None
    assert {len(row) for row in table.rows} == {len(table.headers)} == {2}
    both = comparison(data)
    assert both is not None
    assert {len(row) for row in both.rows} == {3}


def test_failed_requests_are_told_by_reason_with_how_late_that_came(made: Made) -> None:
    data = made("improved")
    assert data.best is not None
    failures = {FailureReason.TIMED_OUT: Failures(1200, 51e3, 310e3)}
    failing = [
        replace(p, measurement=replace(p.measurement, failures=failures)) for p in data.best.rounds
    ]
    table = comparison(replace(data, best=ProvedConfig.of(data.best.candidate, failing)))
    assert table is not None
    told = ("of which timed out in the queue", "-", "1,200, told after 51 ms (p99 310 ms)")
    assert told in table.rows
    assert not any("full queue" in name for name, *_ in table.rows)


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
