"""What a recording means for a run is known, and told, before anything is started."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tuner.bench.job import Job, Request, prepare
from tuner.bench.tools import choose_generator, request_notes
from tuner.errors import SpecError
from tuner.load.generators import OWN_CLIENT
from tuner.modelconfig.content import content_of
from tuner.search.recorded import replay_notes
from tuner.spec.meaning import files_of

CONFIG = """\
backend: "python" max_batch_size: 8 dynamic_batching { }
input { name: "ids" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "sum" data_type: TYPE_INT32 dims: [ 1 ] }
"""
ROWS = [{"due_s": k / 8, "shapes": {"ids": [k % 3 + 1]}} for k in range(601)]
SPEC = """\
model: texts
repository: repository
slo: [p99_latency <= 40ms]
workload: {arrivals: {kind: recording, file: requests.jsonl%s}%s}
space: {instance_group.count: {int: [1, 4]}}
"""


def prepared(
    directory: Path,
    rows: Sequence[dict[str, Any]] = ROWS,
    *,
    arrivals: str = "",
    more: str = "",
    spec: str = "",
) -> Job:
    model = directory / "repository" / "texts"
    (model / "1").mkdir(parents=True, exist_ok=True)
    (model / "config.pbtxt").write_text(CONFIG)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (directory / "requests.jsonl").write_text(lines)
    (directory / "spec.yaml").write_text(spec or SPEC % (arrivals, more))
    return prepare(Request(spec=directory / "spec.yaml"))


def test_a_pace_is_a_rate_of_its_own_and_our_client_sends_it(tmp_path: Path) -> None:
    job = prepared(tmp_path, arrivals=", pace: [2, 1]")
    assert job.plan.listed == pytest.approx((8.0, 16.0))
    choice = choose_generator(job)
    assert choice.kind is OWN_CLIENT
    assert "perf_analyzer does not replay a recording" in choice.why
    assert prepared(tmp_path).plan.listed is None


def test_a_plan_tells_what_is_in_a_recording_and_what_of_it_a_window_replays(
    tmp_path: Path,
) -> None:
    job = prepared(tmp_path, more=", window: 6s")
    (note, apart) = request_notes(job)
    assert note == "requests.jsonl: 601 requests, 4 B to 12 B each"
    assert "ids has 3 different shapes" in apart
    held, window = replay_notes(job.spec, job.plan)
    assert held == (
        "requests.jsonl: 601 requests in 75 s, 8/s on average and 8/s in its busiest second"
    )
    assert "stretches from calm to busy, the busiest one among them" in window
    paced = prepared(tmp_path, arrivals=", pace: [1]", more=", window: 2m")
    assert [*replay_notes(paced.spec, paced.plan)][1] == (
        "requests.jsonl is shorter than a window at 8/s, 2 minutes: it goes round 1.6 times; lower "
        "workload.window"
    )


def test_a_line_that_does_not_fit_the_model_is_told_before_a_run(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"requests\.jsonl:602:17: inputs: ids: \"a\" is no INT32"):
        prepared(
            tmp_path, [*ROWS, {"due_s": 99.0, "inputs": {"ids": {"content": ["a"], "shape": [1]}}}]
        )


def test_times_alone_need_inputs_in_the_spec(tmp_path: Path) -> None:
    times = [{"due_s": row["due_s"]} for row in ROWS]
    with pytest.raises(SpecError, match=r":1:1: it holds no inputs: .*inputs: {kind: random}"):
        prepared(tmp_path, times)
    job = prepared(tmp_path, times, more=", inputs: {kind: random, shapes: {ids: [7]}}")
    assert next(request_notes(job)).startswith("a request carries 28 B")


def test_a_window_is_long_enough_for_several_stretches_unless_the_spec_says_otherwise(
    tmp_path: Path,
) -> None:
    assert prepared(tmp_path).spec.workload.window == 30.0
    assert prepared(tmp_path, more=", window: 5s").spec.workload.window == 5.0


STREAMS = """\
models: {texts: {space: {instance_group.count: {int: [1, 4]}}}}
repository: repository
slo: [p99_latency <= 40ms]
streams: {online: {model: texts, share: %s}, nightly: {model: texts, share: %s}}
workload: {arrivals: {kind: recording, file: requests.jsonl}}
"""


def test_shares_of_streams_are_those_of_the_recording(tmp_path: Path) -> None:
    rows = [{**row, "stream": "online" if k % 4 else "nightly"} for k, row in enumerate(ROWS)]
    job = prepared(tmp_path, rows, spec=STREAMS % ("75%", "25%"))
    assert {name: own.count for name, own in job.recorded.items()} == {
        "online": 450,
        "nightly": 151,
    }
    with pytest.raises(SpecError, match=r"74\.9% of its requests are of the stream online") as told:
        prepared(tmp_path, rows, spec=STREAMS % ("50%", "50%"))
    assert "online 74.9%, nightly 25.1%" in told.value.hint


def test_what_a_recording_holds_is_part_of_what_a_worker_compares(tmp_path: Path) -> None:
    job = prepared(tmp_path)
    files = files_of(job.spec)
    assert files["workload.arrivals.file"] == tmp_path / "requests.jsonl"
    before = content_of(job.served, files)
    other = prepared(tmp_path, [*ROWS, {"due_s": 99.0, "shapes": {"ids": [1]}}])
    after = content_of(other.served, files_of(other.spec))
    assert {name for name in before if before[name] != after[name]} == {"workload.arrivals.file"}
