"""perf_analyzer's files and words; those of no use are in `golden/told/loads-without-result`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.told_loads import HEADER, ROW

from tuner.load.perf_analyzer import outputs
from tuner.load.perf_analyzer.outputs import model_words, useful_words

SETTINGS = "  Batch size: 1\n  Using asynchronous calls for inference\n\n"
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
    found = outputs.read_export(path)
    assert found.sent_ns.tolist() == [200, 300, 400]
    assert found.answered_ns.tolist() == [260, 350, 410]
    assert found.end_ns == 900


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
    found = outputs.read_report(path)
    assert (found["throughput_infer_per_s"], found["p99_latency_us"]) == (193.116, 14704.0)
    client = (found["client_send_us"], found["client_recv_us"], found["network_us"])
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
        ("  Batch size: 1\nsomething else\n\n", "something else"),
        ("", "it said nothing"),
        (SETTINGS, "it gave no reason"),
    ],
)
def test_the_reason_is_found_in_its_output(text: str, expected: str) -> None:
    assert useful_words(text) == expected


def test_a_models_own_words_stand_alone() -> None:
    said = "Failed to process the request(s) for model 'm_0_%d', message: AssertionError: no"
    lines = [f"Thread [{n}] had error: {said % n}" for n in range(2)]
    assert model_words("\n".join([GAVE_UP.splitlines()[3], *lines])) == "AssertionError: no"
    assert model_words(SETTINGS) == ""
