"""`tune record` on what teams have, and on what it cannot read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.commands import Tune
from builders.triton_repository import make_repository


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "access.csv").write_text("time,tokens\n3.5,5\n2.25,64\n")
    (tmp_path / "inputs.json").write_text('{"data": [{"x": [1]}, {"x": [2], "model": "m"}]}')
    (tmp_path / "gaps").write_text("100\n250000\n250000\n")
    return tmp_path


def lines(path: str = "requests.jsonl") -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_a_log_becomes_a_recording_and_the_next_step_is_told(tune: Tune) -> None:
    assert tune("record", "access.csv", "--from", "log", "--time=time", "--shape=ids=tokens") == 0
    assert lines()[1] == {"due_s": 1.25, "shapes": {"ids": [5]}}
    assert tune.out == "requests.jsonl: 2 requests in 1.25 s\n"
    assert "{arrivals: {kind: recording, file: requests.jsonl}}" in tune.err


def test_inputs_come_at_a_rate_or_by_the_gaps_of_perf_analyzer(tune: Tune) -> None:
    inputs = ("record", "inputs.json", "--from", "inputs", "--output", "made.jsonl")
    assert tune(*inputs, "--rate", "4") == 0
    held = [{"x": [1]}, {"x": [2]}]
    assert lines("made.jsonl") == [{"due_s": 0.25 * k, "inputs": own} for k, own in enumerate(held)]
    assert tune(*inputs, "--intervals", "gaps") == 0
    assert [(row["due_s"], row["inputs"]) for row in lines("made.jsonl")] == [
        *((0.0, held[0]), (0.25, held[1]), (0.5, held[0]))
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["access.csv", "--from", "log"], "--from log needs --time"),
        (["access.csv", "--from", "log", "--time", "tme"], "no 'tme' (did you mean time?)"),
        (["access.csv", "--from", "log", "--time", "time", "--shape", "ids"], "is not INPUT=DIM"),
        (["absent", "--from", "log", "--time", "time"], "absent: No such file"),
        (["inputs.json", "--from", "inputs"], "needs --rate or --intervals"),
        (["access.csv", "--from", "inputs", "--rate", "1"], "not in perf_analyzer's input format"),
        (["access.csv", "--from", "triton-trace"], "access.csv: not a trace file of Triton"),
        (["inputs.json", "--output", "inputs.json", "--from", "log"], "is both read and written"),
    ],
)
def test_what_cannot_be_recorded_is_told_and_nothing_is_written(
    tune: Tune, here: Path, arguments: list[str], told: str
) -> None:
    before = {path: path.read_bytes() for path in here.iterdir()}
    assert tune("record", *arguments) == 2
    assert told in tune.err
    assert {path: path.read_bytes() for path in here.iterdir()} == before


def test_doctor_says_whether_a_recording_can_be_read(
    tune: Tune, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.triton.doctor.run_checks", lambda *_, **__: [])
    make_repository(here / "models")
    (here / "spec.yaml").write_text(
        "model: doubler\nrepository: models\nslo: [p99_latency <= 40ms]\n"
        "workload: {arrivals: {kind: recording, file: requests.jsonl}}\n"
        "space: {instance_group.count: {int: [1, 4]}}\n"
    )
    recording = here / "requests.jsonl"
    recording.write_text('{"due_s": 1}\n{"due_s": 2}\n')
    assert tune("doctor", "spec.yaml") == 0
    assert f"ok    recorded requests: 2 in {recording}" in tune.out
    recording.write_text('{"due_s": 1}\n{"due_s": 2')
    assert tune("doctor", "spec.yaml") == 4
    assert f"FIX   recorded requests: {recording}:2:12: the line is cut off" in tune.out
