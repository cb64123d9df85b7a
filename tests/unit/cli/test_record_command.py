"""`tune record` on what teams have, and on what it cannot read."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.commands import Tune
from builders.messages_commands import RECORDED, write_recordables
from builders.messages_doctor import CODE, CONFIG
from builders.model_files import write_model

from tuner.load.traffic.recordings.making import LoggedRequest


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_recordables(tmp_path)
    return tmp_path


def lines(path: str = "requests.jsonl") -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_a_log_becomes_a_recording(tune: Tune) -> None:
    assert tune("record", "access.csv", "--from", "log", "--time=time", "--shape=ids=tokens") == 0
    assert lines()[1] == {"due_s": 1.25, "shapes": {"ids": [5]}}


def test_inputs_come_at_a_rate_or_by_the_gaps_of_perf_analyzer(tune: Tune) -> None:
    inputs = ("record", "inputs.json", "--from", "inputs", "--output", "made.jsonl")
    assert tune(*inputs, "--rate", "4") == 0
    rows = [{"x": [1]}, {"x": [2]}]
    assert lines("made.jsonl") == [{"due_s": 0.25 * k, "inputs": one} for k, one in enumerate(rows)]
    assert tune(*inputs, "--intervals", "gaps", "--force") == 0
    assert [(row["due_s"], row["inputs"]) for row in lines("made.jsonl")] == [
        *((0.0, rows[0]), (0.25, rows[1]), (0.5, rows[0]))
    ]


@pytest.mark.parametrize(
    ("source", "option", "other"),
    [
        ("log", ("--rate", "4"), "inputs"),
        ("log", ("--no-batch",), "triton-trace"),
        ("inputs", ("--time", "t"), "log"),
        ("triton-trace", ("--shape", "x=1"), "log"),
    ],
)
def test_options_of_another_source_are_refused(
    source: str, option: tuple[str, ...], other: str, tune: Tune
) -> None:
    assert tune("record", "access.csv", "--from", source, *option) == 2
    assert f"{option[0]} has an effect with --from {other} only, not with {source}" in tune.err


@pytest.mark.parametrize(
    "entry",
    [
        {"payload": [{"model": "llama", "messages": [{"role": "user", "content": "x"}]}]},
        {"session_id": "a", "payloads": [{"prompt": "x"}]},
        {"x": 3},
        {"x": {"content": {"values": [1]}}},
    ],
)
def test_bodies_for_other_endpoints_are_no_inputs(entry: object, tune: Tune, here: Path) -> None:
    """Of genai-perf and AIPerf: no model has such an input."""
    (here / "bodies.json").write_text(json.dumps({"data": [{"x": [1]}, entry]}))
    assert tune("record", "bodies.json", "--from", "inputs", "--rate", "4") == 2
    assert "bodies.json:1:23: entry 2: " in tune.err
    assert not Path("requests.jsonl").exists()


def test_a_file_that_is_there_is_replaced_with_force_only(tune: Tune, here: Path) -> None:
    command = ("record", "access.csv", "--from", "log", "--time", "time", "-o", "gaps")
    before = (here / "gaps").read_bytes()
    assert tune(*command) == 2
    assert (here / "gaps").read_bytes() == before
    assert tune(*command, "--force") == 0
    assert len(lines("gaps")) == 2


def test_sigterm_leaves_no_temporary_file(
    tune: Tune, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminated(*_: object) -> Iterator[LoggedRequest]:
        yield LoggedRequest(0.0, {})
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("tuner.load.traffic.recordings.access_log.requests_of_log", terminated)
    before = sorted(here.iterdir())
    assert tune("record", "access.csv", "--from", "log", "--time", "time") == 130
    assert sorted(here.iterdir()) == before
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("arguments", RECORDED)
def test_of_what_cannot_be_recorded_nothing_is_written(
    tune: Tune, here: Path, arguments: str
) -> None:
    """What is said is in `golden/messages/commands-record.txt`."""
    before = {path: path.read_bytes() for path in here.iterdir()}
    assert tune("record", *arguments.split()) == 2
    assert {path: path.read_bytes() for path in here.iterdir()} == before


@pytest.mark.parametrize(
    ("slo", "code"), [("p99_latency <= 40ms", 2), ("p90_latency <= 1s", 0), ("error_rate <= 1%", 0)]
)
def test_latency_slo_below_the_resolution_of_a_log_is_refused(
    slo: str, code: int, tune: Tune, here: Path
) -> None:
    """Bursts within a second decide about it, and a log of whole seconds has none."""
    (here / "seconds.csv").write_text("time\n" + "".join(f"{k // 4}\n" for k in range(400)))
    assert tune("record", "seconds.csv", "--from", "log", "--time", "time", "-o", "r.jsonl") == 0
    assert "latency SLOs of 1 s or more" in tune.err
    write_model(here / "models" / "m", CONFIG, CODE)
    (here / "spec.yaml").write_text(
        "model: m\nrepository: models\nserver: {mode: remote, http: 'h:1', grpc: 'h:2'}\n"
        "workload: {arrivals: {kind: recording, file: r.jsonl}, inputs: {kind: random}}\n"
        f"slo:\n  - p95_latency <= 3s\n  - {slo}\n"
        "space: {instance_group.count: {int: [1, 4]}}\n"
    )
    assert tune("plan", "spec.yaml") == code, tune.err
    below = f"spec.yaml:7:5: slo[1]: {slo} depends on bursts shorter than 1 s" in tune.err
    assert below is (slo == "p99_latency <= 40ms")
