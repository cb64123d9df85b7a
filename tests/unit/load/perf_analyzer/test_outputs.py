"""Files and messages of perf_analyzer; unusable ones: `golden/messages/loads-without-result`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.messages_loads import HEADER, ROW

from tuner.load.perf_analyzer import outputs
from tuner.load.perf_analyzer.outputs import answered_errors, useful_words

SETTINGS = "  Batch size: 1\n  Using asynchronous calls for inference\n\n"
#: Of 2.51, in part.
USAGE = """Usage: perf_analyzer [options]
==== SYNOPSIS ====

\t--version

\t called by the input BLS model, and that modelA will use version 3,
\t while modelB's version is unspecified

"""
GAVE_UP = """*** Measurement Settings ***
  Batch size: 1

Failed to retrieve results from inference request.
Thread [0] had error: negative input

Thread [1] had error: negative input

"""


def exported(requests: list[tuple[int, list[int]]], inputs: object = None) -> str:
    """A document as perf_analyzer 2.51 writes it."""
    entries = [
        {
            "timestamp": sent,
            "request_inputs": inputs or {"x": [1.0, 2.0]},
            "response_timestamps": answers,
            "response_outputs": [{"y": [2.0, 4.0]}],
        }
        for sent, answers in requests
    ]
    experiment = {
        "experiment": {"mode": "request_rate", "value": 200.0},
        "requests": entries,
        "window_boundaries": [100, 900, 500],
    }
    document = {"experiments": [experiment], "version": "2.51.0", "service_kind": "triton"}
    return json.dumps({**document, "endpoint": ""}, separators=(",", ":"))


def test_requests_are_read_in_the_order_of_sending(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text(exported([(300, [350]), (200, [210, 260]), (400, [410])]))
    requests = outputs.read_export(path)
    assert requests.sent_ns.tolist() == [200, 300, 400]
    assert requests.answered_ns.tolist() == [260, 350, 410]
    assert requests.end_ns == 900


def test_tensors_that_look_like_time_stamps_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    lookalike = {
        "timestamp": [5],
        "s": '{"timestamp":1,"x":2},"response_timestamps":[3]',
    }
    path.write_text(exported([(200, [210])], lookalike))
    assert outputs.read_export(path).sent_ns.tolist() == [200]


def test_an_export_is_complete_with_its_last_brace(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    assert not outputs.is_complete(path)
    text = exported([(200, [210])])
    for end in range(len(text)):
        path.write_text(text[:end])
        assert not outputs.is_complete(path)
    path.write_text(text)
    assert outputs.is_complete(path)


def test_a_report_is_read(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    path.write_text(HEADER + ROW)
    report = outputs.read_report(path)
    assert (report["throughput_infer_per_s"], report["p99_latency_us"]) == (193.116, 14704.0)
    client = (report["client_send_us"], report["client_recv_us"], report["network_us"])
    assert client == (12.0, 2.0, 456.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            GAVE_UP,
            "Failed to retrieve results from inference request. negative input",
        ),
        (
            "error: failed to get model metadata: Request for unknown model: 'x' is not found\n",
            "failed to get model metadata: Request for unknown model: 'x' is not found",
        ),
        (
            "Error: Failed to parse --concurrency-range. Invalid value provided: abc\n" + USAGE,
            "Failed to parse --concurrency-range. Invalid value provided: abc",
        ),
        (
            USAGE + "Error: Failed to parse --concurrency-range. Invalid value provided: abc\n",
            "Failed to parse --concurrency-range. Invalid value provided: abc",
        ),
        (
            "/bin/perf_analyzer: unrecognized option '--nope'\n" + USAGE,
            "unrecognized option '--nope'",
        ),
        ("  Batch size: 1\nsomething else\n\n", "something else"),
        ("", "it said nothing"),
        (SETTINGS, "it gave no reason"),
    ],
)
def test_reason_is_read_from_the_output(text: str, expected: str) -> None:
    assert useful_words(text) == expected


def test_error_of_the_model_stands_alone() -> None:
    said = "Failed to process the request(s) for model 'm_0_%d', message: AssertionError: no"
    lines = [f"Thread [{n}] had error: {said % n}" for n in range(2)]
    errors = answered_errors("\n".join([GAVE_UP.splitlines()[3], *lines]))
    assert errors == ["AssertionError: no"] * 2
    assert answered_errors(GAVE_UP) == ["negative input"] * 2
    assert answered_errors(SETTINGS) == []


@pytest.mark.parametrize(
    "words",
    [
        "Socket closed",
        "Stream removed (Socket closed)",
        "recvmsg:Connection reset by peer",
        "[request id: 1] Server is stopping, scheduler for model has stopped accepting",
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:8001: refused",
        "HTTP client failed: Failure when receiving data from the peer",
        "failed to parse the request JSON buffer: The document is empty. at 0",
    ],
)
def test_error_of_a_lost_connection_is_no_answer_of_the_model(words: str) -> None:
    assert answered_errors(f"Thread [0] had error: {words}\n") == []
    model_error = f"feature store: {words}"
    assert answered_errors(f"Thread [0] had error: {model_error}\n") == [model_error]
    assert answered_errors(f"Thread [0] had error: {words}\nThread [1] had error: no\n") == ["no"]


def test_an_error_after_the_results_is_an_answer_of_the_model() -> None:
    """One of 375 requests: the export is whole, and the line comes last."""
    report = "Request Rate: 100, throughput: 92.8022 infer/sec, latency 24810 usec\n"
    assert answered_errors(f"{report}Thread [3] had error: out of paper\n\n") == ["out of paper"]
