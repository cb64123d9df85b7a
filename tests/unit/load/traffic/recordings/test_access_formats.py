"""Access logs as nginx and Envoy write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.errors import SpecError
from tuner.load.traffic.recordings.access_formats import call_of, format_of, without_address
from tuner.load.traffic.recordings.access_log import LogColumns, requests_of_log
from tuner.load.traffic.recordings.lines import read_recording
from tuner.load.traffic.recordings.making import LoggedRequest, Making, make_recording, spread

INFER = "POST /v2/models/bert/infer HTTP/1.1"


def nginx(second: int, request: str = INFER, agent: str = "python", more: str = "") -> str:
    at = f"28/Nov/2026:12:00:{second:02d} +0000"
    return f'10.1.2.3 - bob [{at}] "{request}" 200 512 "-" "{agent}"{more}\n'


def envoy(moment: str, request: str = INFER, agent: str = "grpc") -> str:
    return (
        f'[2026-11-28T12:00:{moment}Z] "{request}" 200 - 154 226 100 99 "10.0.35.28" "{agent}" '
        '"cc21d9b0" "models" "10.0.2.1:80"\n'
    )


def requests_in(directory: Path, text: str, **columns: Any) -> tuple[list[LoggedRequest], Making]:
    (directory / "access.log").write_text(text)
    making = Making()
    log = requests_of_log([directory / "access.log"], LogColumns(**columns), making)
    return list(log), making


@pytest.mark.parametrize(
    ("line", "known"),
    [
        (nginx(1), "nginx"),
        (nginx(1, more=' "10.9.9.9"'), "nginx"),
        (nginx(1, more=" 0.123"), "nginx"),
        ('10.1.2.3 - - [28/Nov/2026:12:00:01 +0000] "GET / HTTP/1.1" 200 -\n', "nginx"),
        (envoy("01.310"), "Envoy"),
        ("time,tokens\n", None),
        ("10.1.2.3 something else\n", None),
    ],
)
def test_usual_formats_are_known_by_their_first_line(line: str, known: str | None) -> None:
    assert format_of(line) == known


def test_envoys_times_are_when_requests_came(tmp_path: Path) -> None:
    requests, making = requests_in(tmp_path, envoy("01.310") + envoy("02.5"))
    assert requests[1].at_s - requests[0].at_s == pytest.approx(1.19)
    assert [r.took_s for r in requests] == [0.0, 0.0]
    assert making.notes == {}


def test_nginx_requests_are_put_back_by_the_time_they_took(tmp_path: Path) -> None:
    requests, making = requests_in(tmp_path, nginx(1, more=" 0.250") + nginx(9, more=' "-" 1.000'))
    assert [r.took_s for r in requests] == [0.25, 1.0]
    assert making.notes == {}
    make_recording(iter(requests), tmp_path / "made.jsonl", making, of_a_log=True)
    assert read_recording(tmp_path / "made.jsonl").due_s.tolist() == [0.0, 7.25]


def test_nginx_without_the_time_taken_says_that_times_are_those_of_answers(tmp_path: Path) -> None:
    _, making = requests_in(tmp_path, nginx(1) + nginx(2))
    ((note, count),) = making.notes.items()
    assert (note.startswith("the time is that of the answer"), count) == (True, 2)


def test_column_of_a_table_says_how_long_a_request_took(tmp_path: Path) -> None:
    text = "end,ms\n10,500\n12,250\n"
    requests, _ = requests_in(tmp_path, text, time="end", took="ms", took_unit="ms")
    assert [r.at_s - r.took_s for r in requests] == [9.5, 11.75]
    with pytest.raises(SpecError, match="ms is no length of time: 'x'"):
        requests_in(tmp_path, "end,ms\n10,x\n", time="end", took="ms")


@pytest.mark.parametrize(
    ("request_line", "agent", "left_out"),
    [
        (INFER, "kube-probe/1.27", False),
        ("POST /v2/models/bert/versions/3/infer HTTP/1.1", "", False),
        ("POST /inference.GRPCInferenceService/ModelInfer HTTP/2", "", False),
        ("POST /predict HTTP/1.1", "", False),
        ("POST /healthy-food/predict HTTP/1.1", "", False),
        ("GET /v2/health/ready HTTP/1.1", "", True),
        ("GET /v2/models/bert HTTP/1.1", "", True),
        ("POST /inference.GRPCInferenceService/ServerLive HTTP/2", "", True),
        ("POST /grpc.health.v1.Health/Check HTTP/2", "", True),
        ("GET /metrics HTTP/1.1", "", True),
        ("GET /healthz?full=1 HTTP/1.1", "", True),
        ("GET / HTTP/1.1", "ELB-HealthChecker/2.0", True),
    ],
)
def test_probes_and_other_calls_are_no_inferences(
    request_line: str, agent: str, left_out: bool
) -> None:
    assert bool(call_of({"request": request_line, "user_agent": agent}).left_out) is left_out


def test_probes_are_left_out_and_counted_and_models_are_those_of_paths(tmp_path: Path) -> None:
    text = (
        nginx(1) + nginx(1, "GET /v2/health/live HTTP/1.1") + nginx(3, INFER.replace("bert", "x"))
    )
    requests, making = requests_in(tmp_path, text)
    assert [r.row for r in requests] == [{}, {}]
    assert making.notes["health probes and metrics, left out"] == 1
    assert making.notes["the log is of bert, x: --named tells them apart"] == 0
    requests, _ = requests_in(tmp_path, text, by_path=True)
    assert [r.row for r in requests] == [{"model": "bert"}, {"model": "x"}]


def test_integer_seconds_are_spread_within_the_second_with_a_note(
    tmp_path: Path,
) -> None:
    text = "".join(nginx(second, more=" 0.000") for second in (1, 1, 1, 2, 2, 5))
    requests, making = requests_in(tmp_path, text)
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path in paths:
        make_recording(iter(requests), path, making, of_a_log=True)
    assert paths[0].read_bytes() == paths[1].read_bytes()  # by a seed
    made = read_recording(paths[0])
    assert made.resolution_s == 1.0
    assert np.unique(made.due_s).size == 6
    first_s = np.array([1, 1, 1, 2, 2, 5])
    begin = 1.0 - (made.due_s.max() - 5.0)  # unknown by less than a second
    assert np.all(np.abs(made.due_s + begin - first_s) < 2.0)
    assert any("whole seconds" in note for note in making.notes)


@pytest.mark.parametrize("at_s", [[1.0, 2.0, 3.0], [1.0, 1.0, 1.5], [1.0]])
def test_times_that_need_no_spreading_stay(at_s: list[float]) -> None:
    kept, resolution_s = spread(np.array(at_s))
    assert (kept.tolist(), resolution_s) == (at_s, 0.0)


def test_log_lines_are_printed_without_addresses(tmp_path: Path) -> None:
    for text, columns in (
        ("10.2.3.4,foo,1\n10.2.3.5,bar,2\n", {"time": "t"}),
        ("ip\n10.2.3.4\n", {"time": "ip"}),
        ("t,n\n1,10.2.3.4\n", {"time": "t", "shapes": {"x": ["n"]}}),
        (nginx(1) + "10.2.3.4 rest\n", {}),
    ):
        with pytest.raises(SpecError) as refused:
            requests_in(tmp_path, text, **columns)
        assert "10.2.3" not in refused.value.message + refused.value.hint
    assert without_address("a@b.example") == without_address("fe80::1") == "(an address)"
    assert without_address("2026-11-28T12:00:00") == "'2026-11-28T12:00:00'"


def test_clients_that_are_addresses_get_numbers(tmp_path: Path) -> None:
    text = "t,who\n1,10.0.0.1\n2,batch\n3,10.0.0.2\n4,10.0.0.1\n"
    requests, _ = requests_in(tmp_path, text, time="t", client="who")
    assert [r.row["client"] for r in requests] == ["client 1", "batch", "client 2", "client 1"]


def test_log_without_a_known_time_says_which_option_names_it(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        requests_in(tmp_path, "at,n\n1,2\n")
    assert refused.value.hint == "name it with --time COLUMN"
