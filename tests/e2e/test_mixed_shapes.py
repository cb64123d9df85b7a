"""A run under requests of two lengths on a real server ends with a config and figures of each."""

from __future__ import annotations

import pytest
from builders.e2e_workplace import Workplace
from builders.text_model import TEXT_CONFIG, text_code

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.measuring]

#: 10 requests a second at the most, one by one; in batches of one length twice as many.
_SPEC = """\
model: texts
repository: repository
workload:
  arrivals: {kind: poisson, rate: [5, 13]}
  inputs:
    kind: random
    shapes: {ids: [{dims: [64], share: 70%}, {dims: [256], share: 30%}]}
  window: 4s
slo: [p90_latency <= 1s]
space:
  dynamic_batching: {choice: [off, on]}
budget: {trials: 2}
confirm: {finalists: 1, rounds: 3, soak: 4s, time: 5m}
"""


def test_the_written_config_and_the_report_are_of_both_lengths(workplace: Workplace) -> None:
    config = workplace.place("texts", text_code(0.1, 0.00001), TEXT_CONFIG) / "config.pbtxt"
    done = workplace.improve(_SPEC)
    assert "measured with tune's own client: perf_analyzer does not draw shapes" in done.stderr
    result = workplace.result()
    assert "dynamic_batching" in config.read_text()
    short, long = result["winner"]["shapes"]
    assert (short["shape"], long["shape"]) == ("[64]", "[256]")
    assert long["share"] == pytest.approx(0.3, abs=0.02)
    assert (short["batched_with"], long["batched_with"]) == (["[64]"], ["[256]"])
    assert [shape["batched_with"] for shape in result["baseline"]["shapes"]] == [[], []]
    assert all(shape["p99_latency_us"] > 100e3 for shape in (short, long))
    for name in ("report.html", "report.md"):
        assert "By shape of request" in (workplace.run / name).read_text()
    assert "by shape of request" in done.stdout
