"""Inputs in the form that perf_analyzer reads."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from tuner.load.perf_analyzer.input_file import write_inputs
from tuner.load.traffic.wire import Content


def test_an_input_file_has_each_inference_in_binary_and_in_order(tmp_path: Path) -> None:
    one, other = {"x": Content((2,), b"\1\0")}, {"x": Content((1,), b"\7"), "y": Content((0,), b"")}
    write_inputs([one, other, one], tmp_path / "inputs.json")
    entries = json.loads((tmp_path / "inputs.json").read_text())["data"]
    assert [entry["x"]["shape"] for entry in entries] == [[2], [1], [2]]
    assert [base64.b64decode(entry["x"]["b64"]) for entry in entries] == [b"\1\0", b"\7", b"\1\0"]
    assert entries[1]["y"] == {"b64": "", "shape": [0]}
