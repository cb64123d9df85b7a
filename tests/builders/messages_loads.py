"""What is said of loads without a result, of warnings beside one, and of what loads are made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import grpc  # type: ignore[import-untyped]
import numpy as np
from builders.measurements import P99_40MS, synthetic_measurement
from builders.refusals import Case

from tuner.load.client.calls import Connection
from tuner.load.latency import AnsweredRequests, observe_open
from tuner.load.perf_analyzer import outputs
from tuner.load.probes.overload import overload_of, overload_window
from tuner.load.probes.preparing import ask_in_order
from tuner.load.restarts import combine
from tuner.load.traffic import arrivals, encoding, inputs
from tuner.load.traffic.encoding import TensorShape, build
from tuner.load.traffic.inputs import DrawnInputs
from tuner.load.traffic.recordings.lines import RecordedStream, read_recording
from tuner.load.traffic.recordings.shapes import groups_of
from tuner.load.traffic.request_file import read_requests
from tuner.load.traffic.wire import Content, RequestForm
from tuner.load.watch.early_end import check_answered
from tuner.measurement.measurement import Arrivals, LoadPoint, Slice
from tuner.measurement.window import Window
from tuner.spec.workload import RandomInputs

WINDOW = Window(duration_s=2.0, warmup_s=0.5, deadline_s=60.0, tail_s=0.5)
HEADER = (
    "Request Rate,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,"
    "Server Compute Input,Server Compute Infer,Server Compute Output,Client Recv,p50 latency,"
    "p90 latency,p95 latency,p99 latency,Avg latency,request/response,response wait\n"
)
ROW = "200,193.116,12,456,2872,52,6239,454,2,10103,13300,13735,14704,10090,14,10059\n"
#: What is no report of perf_analyzer.
REPORTS = {
    "it is empty": "",
    "it has no row": HEADER,
    "it has other columns": "a,b\n1,2\n",
    "a figure is a word": HEADER + ROW.replace("10103", "no"),
    "a row is cut off": f"{HEADER}200\n",
    "a figure is none": HEADER + ROW.replace("14704", "nan"),
    "a figure has no end": HEADER + ROW.replace("14704", "1e999"),
    "a field has no end": f'{HEADER}"{"x" * 200_000}"\n',
}
NO_WINDOW = '{"timestamp":1,"response_timestamps":[1],"window_boundaries":[%s]}'
#: What is no export of it.
EXPORTS = {
    "it is empty": "",
    "it has no request": '{"experiments":[{"requests":[],"window_boundaries":[100,900]}]}',
    "a time is too large": NO_WINDOW.replace("1", "99999999999999999999", 1) % 1,
    "a request has no time": NO_WINDOW.replace("[1]", "[,]") % 1,
    "a window has a gap": NO_WINDOW % "1,,2",
    "a time has too many digits": NO_WINDOW.replace("[1]", f"[{'9' * 5000}]") % 1,
}
#: What is no trace of gaps.
TRACES = {
    "a gap is a word": "100\nabc\n",
    "a gap is below zero": "-1\n",
    "it is empty": "",
    "all gaps are none": "0\n0\n",
    "a gap is infinite": "100\ninf\n",
    "a gap has 400 digits": "100\n" + "1" * 400,
    "gaps are in nanoseconds": "100\n86400000000000\n",
}
#: What is no list of inputs for a model with two numbers.
INPUTS: dict[str, str] = {
    "it is no JSON": "[1, 2",
    "it has a request a line": '{"x": [1]}\n{"x": [2]}',
    "it is a body of HTTP": '{"inputs": [{"name": "x", "shape": [1], "data": [1]}]}',
    "it has no entry": '{"data": []}',
    "it is a list": '[{"x": [1, 2]}]',
    "it has no data": '{"inputs": [{"x": [1, 2]}]}',
    "it is a number": "1",
    "bytes are cut off": '{"data": [{"x": {"b64": "a"}}]}',
}


def form(size: int = 1) -> RequestForm:
    return RequestForm("m", {"x": "FP32"}, batched=True, batch_size=size)


def reading(read: Callable[[Path], object], texts: dict[str, str], name: str) -> dict[str, Case]:
    def of(text: str) -> Case:
        def case(here: Path) -> object:
            (here / "file").write_text(text)
            return read(here / "file")

        return case

    return {f"{name}: {what}": of(text) for what, text in texts.items()}


class Gone(grpc.RpcError):  # type: ignore[misc]
    """A call that a server which is gone does not answer."""

    def future(self, *_: object, **__: object) -> Gone:
        return self

    def result(self) -> None:
        raise self

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "Socket closed"


def no_results() -> dict[str, Case]:
    """Why a load has none, and what is not one of its files."""

    def no_request(_: Path) -> object:
        sent = np.array([100_000_000])
        answered = AnsweredRequests(sent, sent + 10_000_000, 3_000_000_000)
        return observe_open(answered, np.array([0.1, 5.0]), WINDOW)

    def too_large(_: Path) -> object:
        rows = [{"x": Content((2,), bytes([n] * 8))} for n in range(10)]
        with patch.object(encoding, "MAX_BYTES", 100):
            return build(rows, form(), 10)

    def closed(_: Path) -> list[str]:
        ends: list[str] = []
        connection = Connection(lambda _: None, lambda _: None)
        connection.connection_made(type("Wire", (), {"write": lambda *_: None})())
        connection.ask(b"request", lambda _, words: ends.append(words))
        connection.connection_lost(None)
        return ends

    def unlike(_: Path) -> object:
        return build([{"x": Content((n,), bytes(4 * n))} for n in (3, 1)], form(2), 1)

    probe, plain = overload_window(P99_40MS), synthetic_measurement()
    calm = Slice(0.0, 100.0, 100.0, 20e3)
    return {
        "no request in the window": no_request,
        "no answer": lambda _: str(check_answered(0, WINDOW, WINDOW)),
        "no answer in a window that was ended early": lambda _: str(
            check_answered(0, replace(WINDOW, duration_s=1.0), WINDOW)
        ),
        "an overload without latencies": lambda _: overload_of(plain, probe, P99_40MS),
        "an overload of a client that is behind": lambda _: overload_of(
            replace(plain, late_sends=0.2, slices=(calm,)), probe, P99_40MS
        ),
        "a server that is gone as its cache is filled": lambda _: ask_in_order(
            Gone(), [b"1"] * 1000, None
        ),
        "a connection that ends": closed,
        "inputs that do not fit in memory": too_large,
        "inputs of unlike shapes in a request": unlike,
        **reading(
            lambda path: read_requests(path, [TensorShape("x", "FP32", (2,))]), INPUTS, "inputs"
        ),
        **reading(outputs.read_report, REPORTS, "report"),
        **reading(outputs.read_export, EXPORTS, "export"),
        "export: it is not there": outputs.read_export,
        **reading(arrivals.read_trace, TRACES, "trace"),
        "trace: it is not there": lambda here: arrivals.read_trace(here / "none"),
        "trace: it never ends": lambda _: arrivals.read_trace(Path("/dev/zero")),
    }


def noted() -> dict[str, Case]:
    """Notes beside a result."""

    def restarted(_: Path) -> Sequence[str]:
        load = LoadPoint(Arrivals.CLOSED, 32)
        rates = (1667.0, 1480.0, 1500.0)
        measurements = [synthetic_measurement(32, 20e3, served=rate) for rate in rates]
        return combine([replace(m, load=load) for m in measurements]).warnings

    def large(_: Path) -> Sequence[str]:
        spec = RandomInputs.model_validate({"kind": "random", "unique": 1000})
        with patch.object(inputs, "MAX_FILE_BYTES", 10_000):
            return DrawnInputs(spec, [TensorShape("x", "FP32", (300,))]).of_run(1, 1000).warnings

    def grouped(*shapes: dict[str, list[int]]) -> Case:
        def case(here: Path) -> list[str]:
            lines = [json.dumps({"due_s": k, "shapes": dims}) for k, dims in enumerate(shapes)]
            (here / "requests.jsonl").write_text("\n".join(lines) + "\n")
            recording = read_recording(here / "requests.jsonl")
            groups = groups_of(RecordedStream(recording, np.arange(len(shapes))))
            return [group.name for group in groups]

        return case

    return {
        "a closed loop settles otherwise at each start": restarted,
        "inputs are large": large,
        "recorded requests of two shapes": grouped(*({"ids": [n], "mask": [n, 2]} for n in (4, 3))),
        "recorded requests of many shapes": grouped(*({"ids": [n + 1]} for n in range(100))),
    }
