"""An access log becomes a recording, and a run under it on a real server writes a config."""

from __future__ import annotations

import pytest
from builders.e2e_workplace import Workplace
from builders.text_model import TEXT_CONFIG, text_code

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.measuring]

#: One by one the model answers 10 a second: a burst of 20 a second is too much for it.
_SPEC = """\
model: texts
repository: repository
workload:
  arrivals: {kind: recording, file: requests.jsonl, pace: [0.4, 1]}
  window: 9s
slo: [p90_latency <= 1200ms]
space:
  dynamic_batching: {choice: [off, on]}
budget: {trials: 2}
confirm: {finalists: 1, rounds: 3, soak: 9s, time: 5m}
"""


def test_a_config_is_written_that_holds_the_burst_of_an_access_log(workplace: Workplace) -> None:
    """A minute of 4 a second, with a burst of 20 a second for 2 s."""
    config = workplace.place("texts", text_code(0.1), TEXT_CONFIG) / "config.pbtxt"
    times = [0.25 * k for k in range(240)] + [40.0 + 0.0625 * k for k in range(32)]
    rows = "".join(f"{1.7e9 + t:.3f},{16 if k % 3 else 32}\n" for k, t in enumerate(times))
    (workplace.directory / "access.csv").write_text("time,tokens\n" + rows)
    log = ("--from", "log", "--time", "time", "--shape", "ids=tokens")
    recorded = workplace.tune("record", "access.csv", *log)
    assert "requests.jsonl: 272 requests in 59.8 s" in recorded.stdout
    done = workplace.improve(_SPEC)
    assert "measured with tune's own client: perf_analyzer does not replay" in done.stderr
    assert "272 requests in 60 s, 4.54/s on average and 20/s in its busiest second" in done.stderr
    result = workplace.result()
    assert "dynamic_batching" in config.read_text()
    loads = [
        point["measurement"]["load"] for trial in workplace.trials() for point in trial["points"]
    ]
    assert {load["arrivals"] for load in loads} == {"recording"}
    for name in ("report.html", "report.md"):
        assert "By shape of request" in (workplace.run / name).read_text()
    assert [shape["shape"] for shape in result["winner"]["shapes"]] == ["[16]", "[32]"]
