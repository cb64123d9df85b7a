"""A recording replayed on a real server: each request at its time, with what its line holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builders.candidates import the_one
from builders.load_bench import started

from tuner.load.setup import StreamRequests
from tuner.load.streams_load import StreamsLoad
from tuner.load.traffic.recordings.making import Making, make_recording
from tuner.load.traffic.recordings.triton_trace import requests_of_trace
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import EarlyEnd, Window
from tuner.spec.workload import RecordingInputs

if TYPE_CHECKING:
    from builders.load_bench import Bench

    from tuner.server.binaries import Installation

pytestmark = [pytest.mark.integration, pytest.mark.long]

REPLAYED = RecordingInputs(kind="recording")
#: 25 a second for 4 s; `plain` fails what is negative.
ROWS = [
    {"due_s": 0.04 * k, "inputs": {"x": [-1.0 if k in (10, 50, 90) else 1.0] * 8}}
    for k in range(100)
]


def load_on(
    bench: Bench, rows: list[dict[str, Any]], streams: dict[str, StreamRequests], **arrivals: Any
) -> StreamsLoad:
    path = bench.directory / "requests.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recorded = {"kind": "recording", "file": str(path), **arrivals}
    return bench.streams(streams, arrivals=recorded)


def window(duration_s: float) -> Window:
    return Window(duration_s, 0.0, 60.0, 1.0, ends_early=EarlyEnd.NEVER)


@pytest.mark.parametrize("pace", [1.0, 2.0])
def test_full_recording_is_replayed_with_the_content_of_its_lines(
    bench: Bench, pace: float
) -> None:
    load = load_on(bench, ROWS, {"plain": StreamRequests("plain", REPLAYED)}, pace=[pace])
    measurement = load.measure(LoadPoint(Arrivals.RECORDING, 25.0 * pace), window(4.0 / pace), 1)
    assert measurement.latencies_us is not None
    assert measurement.latencies_us.size == 97
    assert measurement.unanswered_count == 0
    assert measurement.failed_count == 3
    assert measurement.due_per_s == pytest.approx(25.0 * pace)
    assert any("with an error: negative input" in message for message in measurement.warning_texts)
    assert len(the_one(load.answers()).alone) == 16


def test_level_sends_that_many_requests_with_the_inputs_of_each_stream(bench: Bench) -> None:
    """The other stream's requests hold only a shape."""
    rows = [
        row | {"stream": "floats"}
        if k % 4
        else {"due_s": 0.04 * k, "stream": "texts", "shapes": {"ids": [16]}}
        for k, row in enumerate(ROWS)
    ]
    streams = {
        "floats": StreamRequests("plain", REPLAYED, share=0.75),
        "texts": StreamRequests("texts", REPLAYED, share=0.25),
    }
    load = load_on(bench, rows, streams)
    measurement = load.measure(LoadPoint(Arrivals.RECORDING, 20.0), window(4.0), 1)
    assert measurement.due_per_s == pytest.approx(20.0, abs=0.5)
    assert measurement.streams["texts"].due_per_s == pytest.approx(5.0, abs=0.5)
    assert measurement.streams["texts"].failed_count == 0
    assert 1 <= measurement.streams["floats"].failed_count <= 3


def test_requests_of_each_length_have_separate_figures(bench: Bench) -> None:
    rows = [{"due_s": 0.05 * k, "shapes": {"ids": [128 if k % 10 < 3 else 16]}} for k in range(80)]
    load = load_on(bench, rows, {"texts": StreamRequests("texts", REPLAYED)}, pace=[1.0])
    measurement = load.measure(LoadPoint(Arrivals.RECORDING, 20.0), window(4.0), 1)
    short, long = measurement.shapes["[16]"], measurement.shapes["[128]"]
    assert (short.completed_count, long.completed_count) == (56, 24)
    assert long.due_per_s == pytest.approx(0.3 * measurement.due_per_s)


def test_an_overload_and_a_closed_loop_send_what_was_recorded(bench: Bench) -> None:
    load = load_on(bench, ROWS, {"plain": StreamRequests("plain", REPLAYED)})
    closed = load.measure(LoadPoint(Arrivals.CLOSED, 2.0), window(2.0), 1)
    assert closed.failed_count == pytest.approx(0.03 * closed.completed_count, abs=4)
    step = load.measure(LoadPoint(Arrivals.STEP, 20.0), window(2.0), 1)
    assert step.completed_count > 20


def test_traced_requests_are_recorded_with_their_inputs(
    program: Installation, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.json"
    config = [f"triton,file={trace}", "triton,log-frequency=2", "rate=1"]
    config += ["level=TIMESTAMPS", "level=TENSORS"]
    arguments = [f"--trace-config={value}" for value in config]
    with started(program, tmp_path, arguments, ["plain"]) as traced:
        load = load_on(traced, ROWS[:41], {"plain": StreamRequests("plain", REPLAYED)}, pace=[1.0])
        sent = load.measure(LoadPoint(Arrivals.RECORDING, 25.0), window(1.64), 1)
    making, path = Making(), tmp_path / "made.jsonl"
    paths = sorted(tmp_path.glob("trace.json*"))
    logged = requests_of_trace(paths, making, batched=True, named=True)
    make_recording(logged, path, making)
    recorded = [json.loads(line) for line in path.read_text().splitlines()]
    assert making.requests >= sent.completed_count + sent.failed_count
    negative = [k for k, row in enumerate(recorded) if row["inputs"]["x"]["content"][0] < 0]
    assert negative[0] == 10
    assert {row["model"] for row in recorded} == {"plain"}
    assert 0.16 < recorded[40]["due_s"] < 16.0  # as long as the load, on a machine that stalls too
