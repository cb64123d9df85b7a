"""A check as OpenMetrics, and the queries that read it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders.checks import SLO, facts
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus_text

from tuner.record.checks import CheckFacts
from tuner.record.status import CheckStatus
from tuner.report.check_document import open_metrics

NIGHTLY = Path(__file__).parents[3] / "docs" / "nightly.md"
Samples = dict[tuple[str, str], float]


def samples(check: CheckFacts) -> Samples:
    """What is written, by name and the label that tells samples of a name apart.

    Both parsers read the same: the node exporter knows the older format alone, without times.
    """
    text = open_metrics(check)
    every = [s for f in openmetrics.text_string_to_metric_families(text) for s in f.samples]
    assert every == [s for f in prometheus_text(text) for s in f.samples]
    assert all(sample.timestamp is None for sample in every)
    assert {s.labels["model"] for s in every} == {check.model}
    labels = {"model", "spec"}
    return {
        (s.name, "".join(v for k, v in s.labels.items() if k not in labels)): s.value for s in every
    }


def test_metrics_contain_the_status_and_findings_of_the_check() -> None:
    odd = SLO | {"expression": 'a "b"\\\n <= 1', "margin": -0.2}
    slos = [{"worst": odd, "values": [1.0]}, {"worst": SLO, "values": [1.0]}]
    values = samples(facts(CheckStatus.REGRESSION, exit_code=12, slo=slos))
    ended = {label: value for (name, label), value in values.items() if name == "tune_check_status"}
    assert [status for status, value in ended.items() if value] == ["regression"]
    assert set(ended) == {status.value for status in CheckStatus}
    assert values["tune_check_exit_code", ""] == 12
    assert values["tune_check_timestamp_seconds", ""] == 1740880800
    assert values["tune_check_value", "capacity"] == pytest.approx(2000, abs=1)
    assert [values["tune_check_ratio", b] for b in ("low", "estimate", "high")] == [0.89, 0.9, 0.91]
    assert values["tune_check_fail_ratio", ""] == 0.95
    assert values["tune_check_slo_margin", odd["expression"]] == -0.2


def test_equal_slos_of_two_streams_are_distinguished() -> None:
    slos = [
        {"worst": SLO | {"stream": stream, "margin": margin}, "values": [1.0]}
        for stream, margin in (("interactive", -0.2), ("batch", 0.3))
    ]
    values = samples(facts(CheckStatus.MISSED, exit_code=10, slo=slos))
    assert {-0.2, 0.3} <= set(values.values())


def test_metrics_leave_out_values_that_were_not_measured() -> None:
    values = samples(facts(CheckStatus.INTERRUPTED, values=[], slo=[], ratio=None, exit_code=130))
    names = {name for name, _ in values}
    assert "tune_check_exit_code" in names
    assert names.isdisjoint({"tune_check_value", "tune_check_ratio", "tune_check_slo_margin"})


def test_the_queries_of_the_nightly_page_ask_for_metrics_that_are_written() -> None:
    written = {family.name for family in prometheus_text(open_metrics(facts()))}
    names = re.findall(r"tune_check_\w+", NIGHTLY.read_text())
    assert set(names) == written
