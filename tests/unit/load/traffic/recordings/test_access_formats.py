"""Access logs as usual servers write them."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.logs import json_lines

from tuner.errors import SpecError
from tuner.load.traffic.recordings.access_formats import (
    call_of,
    format_of,
    without_address,
)
from tuner.load.traffic.recordings.access_log import LogColumns, requests_of_log
from tuner.load.traffic.recordings.lines import read_recording
from tuner.load.traffic.recordings.log_times import moment_s
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


def haproxy(second: str, request: str = INFER) -> str:
    return (
        f"Nov 28 12:00:09 lb haproxy[1438]: 10.1.2.3:33317 [28/Nov/2026:12:00:{second}] http-in "
        f'triton/s1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {{1wt.eu}} {{}} "{request}"\n'
    )


def traefik(second: int, request: str = INFER, agent: str = "grpc") -> str:
    line = nginx(second, request, agent).rstrip("\n")
    return f'{line} 2 "triton@docker" "http://10.0.0.3:8000" 34ms\n'


def amazon(second: str, request: str = INFER, agent: str = "grpc") -> str:
    """An Application Load Balancer's; the first time is that of the answer."""
    path = request.replace(" /", " https://10.0.2.105:443/")
    return (
        "h2 2026-11-28T12:00:59.186641Z app/my-lb/50dc6c 10.0.1.252:48160 10.0.0.66:9000 0.000 "
        f'0.002 0.005 200 200 5 257 "{path}" "{agent}" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 '
        'arn:aws:elasticloadbalancing:us-east-2:1:targetgroup/t/7 "Root=1-58337281-1d" '
        f'"api.example.com" "-" 1 2026-11-28T12:00:{second}Z "waf,forward" "-" "-" '
        '"10.0.0.66:9000" "200" "-" "-" TID_1\n'
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
        (haproxy("01.310"), "HAProxy"),
        (traefik(1), "Traefik"),
        (amazon("01.310"), "AWS's load balancer"),
        ("time,tokens\n", None),
        ("10.1.2.3 something else\n", None),
    ],
)
def test_usual_formats_are_known_by_their_first_line(line: str, known: str | None) -> None:
    assert format_of(line) == known


@pytest.mark.parametrize("line", [envoy, haproxy, amazon])
def test_times_of_proxies_are_when_requests_came(line: Any, tmp_path: Path) -> None:
    text = line("01.310") + line("02.500") + line("03.000", "GET /v2/health/ready HTTP/1.1")
    requests, making = requests_in(tmp_path, text, by_path=True)
    assert requests[1].at_s - requests[0].at_s == pytest.approx(1.19)
    assert [r.took_s for r in requests] == [0.0, 0.0]
    assert [r.row for r in requests] == [{"model": "bert"}] * 2
    assert making.notes == {"health probes and metrics, left out": 1}


def test_traefiks_times_are_not_those_of_answers(tmp_path: Path) -> None:
    assert requests_in(tmp_path, traefik(1) + traefik(2))[1].notes == {}


def test_nginx_requests_are_put_back_by_the_time_they_took(tmp_path: Path) -> None:
    requests, making = requests_in(tmp_path, nginx(1, more=" 0.250") + nginx(9, more=' "-" 1.000'))
    assert [r.took_s for r in requests] == [0.25, 1.0]
    assert making.notes == {}
    make_recording(iter(requests), tmp_path / "made.jsonl", making, of_a_log=True)
    assert read_recording(tmp_path / "made.jsonl").due_s.tolist() == [0.0, 7.25]


def test_nginx_with_dates_in_iso_8601_is_read_alike(tmp_path: Path) -> None:
    text = nginx(1, more=" 0.250").replace(
        "28/Nov/2026:12:00:01 +0000", "2026-11-28T12:00:01+00:00"
    )
    ((one,), making) = requests_in(tmp_path, text)
    assert (one.at_s % 60, one.took_s, making.notes) == (1.0, 0.25, {})


@pytest.mark.parametrize("before", ["", "stdout F "])
def test_date_of_a_runtime_is_that_of_a_line_without_one(before: str, tmp_path: Path) -> None:
    """Knative's proxy writes no time; kubectl logs --timestamps adds one."""
    row = {"httpRequest": {"requestUrl": "/v2/models/bert/infer", "latency": "0.25s"}}
    text = f"2026-11-28T12:00:59.250123456Z {before}{json.dumps(row)}\n"
    (one,), _ = requests_in(tmp_path, text)
    assert one.at_s % 60 == pytest.approx(59.250123)


def test_nginx_without_the_time_taken_says_that_times_are_those_of_answers(tmp_path: Path) -> None:
    _, making = requests_in(tmp_path, nginx(1) + nginx(2))
    ((note, count),) = making.notes.items()
    assert (note.startswith("the time is that of the answer"), count) == (True, 2)


def test_column_of_a_table_says_how_long_a_request_took(tmp_path: Path) -> None:
    text = "end,ms\n10,500\n12,250\n"
    requests, _ = requests_in(tmp_path, text, time="end", took="ms", took_unit="ms")
    assert [r.at_s - r.took_s for r in requests] == [9.5, 11.75]
    with pytest.raises(SpecError, match="ms is not a duration: 'x'"):
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


def as_caddy(at: float, uri: str) -> dict[str, Any]:
    request = {"method": "POST", "uri": uri, "headers": {"User-Agent": ["python"]}}
    return {"ts": at, "logger": "http.log.access", "request": request, "duration": 0.25}


def as_google(at: float, uri: str) -> dict[str, Any]:
    request = {"requestUrl": f"https://t.example{uri}", "latency": "0.25s", "userAgent": "x"}
    return {"ts": f"2026-11-28T12:00:{at:09.6f}123Z", "httpRequest": request}


def as_traefik(at: float, uri: str) -> dict[str, Any]:
    return {"ts": at, "RequestPath": uri, "Duration": 250_000_000}


@pytest.mark.parametrize(
    ("line", "length", "unit"),
    [
        (as_google, "httpRequest.latency", "ms"),  # which writes its unit
        (as_traefik, "Duration", "ns"),
    ],
)
def test_paths_and_lengths_are_read_under_the_names_of_other_servers(
    line: Any, length: str, unit: str, tmp_path: Path
) -> None:
    """Of objects in objects too: a health probe is no request of a load."""
    infer = "/v2/models/bert/infer"
    text = json_lines(line(1.0, infer), line(2.5, infer), line(3.0, "/v2/health/ready"))
    requests, making = requests_in(tmp_path, text, time="ts", by_path=True)
    assert [r.row for r in requests] == [{"model": "bert"}] * 2
    probes = "health probes and metrics, left out"
    (noted,) = making.notes.keys() - {probes}
    assert noted.startswith("if ts is when a request was answered, ")
    assert f"--took {length} " in noted
    requests, making = requests_in(tmp_path, text, time="ts", took=length, took_unit=unit)
    assert [r.took_s for r in requests] == [0.25, 0.25]
    assert [*making.notes] == [probes]


def test_request_time_of_nginx_counts_beside_a_time_of_any_name(tmp_path: Path) -> None:
    rows = ({"@timestamp": 10 + k, "request_time": f"{k}.250"} for k in range(2))
    requests, making = requests_in(tmp_path, json_lines(*rows), time="@timestamp")
    assert [r.at_s - r.took_s for r in requests] == [9.75, 9.75]
    ((note, count),) = making.notes.items()
    assert (note.startswith("request_time is how long a request took"), count) == (True, 0)


def test_calls_whose_paths_name_no_model_get_a_note(tmp_path: Path) -> None:
    call = "POST /inference.GRPCInferenceService/ModelInfer HTTP/2"
    _, making = requests_in(tmp_path, envoy("01.310", call), by_path=True)
    assert [note.partition(",")[0] for note in making.notes] == ["no path names a model"]


@pytest.mark.parametrize(
    "line", [nginx(5, more=" 0.250").rstrip(), json.dumps(as_caddy(5.0, "/x"))]
)
@pytest.mark.parametrize("outer", ["docker", "kubernetes"])
def test_lines_in_logs_of_containers_are_read(line: str, outer: str, tmp_path: Path) -> None:
    at = "2026-11-28T12:00:59.123456789Z"
    texts = {
        "docker": json.dumps({"log": f"{line}\n", "stream": "stdout", "time": at}),
        "kubernetes": f"{at} stdout F {line}",
    }
    column = "ts" if line.startswith("{") else ""
    text = f"{texts[outer]}\n"
    probe = text.replace("/v2/models/bert/infer", "/v2/health/ready").replace('"/x"', '"/metrics"')
    probe = probe.replace('\\"/x\\"', '\\"/metrics\\"')
    requests, making = requests_in(tmp_path, text + probe, time=column)
    assert len(requests) == 1
    assert making.notes["health probes and metrics, left out"] == 1
    assert requests[0].at_s % 60 == 5.0


def test_blank_lines_among_json_lines_are_no_mistakes(tmp_path: Path) -> None:
    requests, _ = requests_in(tmp_path, '{"t": 1}\n\n{"t": 2}\n', time="t")
    assert [r.at_s for r in requests] == [1.0, 2.0]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_tables_of_other_separators_are_read(separator: str, tmp_path: Path) -> None:
    text = "time,n\n2026-11-28T12:00:01,3\n".replace(",", separator)
    requests, _ = requests_in(tmp_path, text, time="time", shapes={"x": ["n"]})
    assert [r.row for r in requests] == [{"shapes": {"x": [3]}}]


@pytest.mark.parametrize(
    ("date", "iso"),
    [
        ("2026-11-01 06:30:00 UTC", "2026-11-01T06:30:00+00:00"),
        ("2026-11-01 12:00:00 +0530", "2026-11-01T06:30:00+00:00"),
        ("2026-11-01 06:30:00,250", "2026-11-01T06:30:00.250+00:00"),
        ("2026-11-01 06:30:00.2500000", "2026-11-01T06:30:00.250+00:00"),
        ("01/Nov/2026:06:30:00.250", "2026-11-01T06:30:00.250+00:00"),
        ("2026-11-01", "2026-11-01T00:00:00+00:00"),
    ],
)
def test_dates_mean_the_same_on_every_machine(
    date: str, iso: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a zone they are UTC: an hour of a night would else be missing, or come twice."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert moment_s(date) == datetime.fromisoformat(iso).timestamp()
    finally:
        monkeypatch.undo()
        time.tzset()


def test_times_of_the_wrong_unit_are_refused_with_the_likely_one(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="ts 1710238530123 in s is later than the year 5000") as no:
        requests_in(tmp_path, "ts\n1710238530123\n", time="ts")
    assert no.value.hint == "name the unit of these times: --time-unit ms"
    (one,), _ = requests_in(tmp_path, "ts\n1710238530123\n", time="ts", time_unit="ms")
    assert one.at_s == pytest.approx(1710238530.123)


def test_times_that_are_multiples_of_seconds_are_spread_within_these(tmp_path: Path) -> None:
    """Public traces have such: every request of three seconds, or of a minute, has one time."""
    at_s = [3.0 * (k // 4) for k in range(100)]
    making = Making()
    make_recording(map(LoggedRequest, at_s, [{}] * 100), tmp_path / "r", making, of_a_log=True)
    made = read_recording(tmp_path / "r")
    assert made.resolution_s == 3.0
    assert float(np.diff(made.due_s).max()) < 3.0
    assert any("the recording serves latency SLOs of 3 s or more" in n for n in making.notes)


@pytest.mark.parametrize(
    ("at_s", "noted"),
    [
        ([15.0 * k for k in range(20)], True),
        ([15.0 * k for k in range(15)], False),  # may be by chance
        ([0.5 * k for k in range(20)], False),
        ([15.0 * k + 0.1 * (k % 2) for k in range(20)], False),
    ],
)
def test_samples_of_a_metric_are_not_taken_for_requests_in_silence(
    at_s: list[float], noted: bool, tmp_path: Path
) -> None:
    """Such as an export from a dashboard, of which each row is a rate."""
    making = Making()
    requests = [LoggedRequest(at, {}) for at in at_s]
    make_recording(requests, tmp_path / "r", making, of_a_log=True)
    starts = [note.partition(",")[0] for note in making.notes]
    assert starts == ["one line comes each 15 s"] * noted


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
        (nginx(1) + '10.2.3.4 "GET /x HTTP/1.1" rest\n', {}),
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
    with pytest.raises(SpecError, match="the columns are at, n") as refused:
        requests_in(tmp_path, ",at,n\n0,1,2\n")  # the first is an index
    assert refused.value.hint == "name it with --time COLUMN"


def test_lines_of_an_unknown_format_are_not_taken_for_names_of_columns(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="the first line has no names of columns"):
        requests_in(tmp_path, "10.1.2.3 [1] GET / 200\n10.1.2.3 [2] GET / 200\n")


def test_a_date_that_is_none_is_named_with_its_column(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="start_time is neither a number nor an ISO 8601 date"):
        requests_in(tmp_path, "start_time\nsoon\n")
