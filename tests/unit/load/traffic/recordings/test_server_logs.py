"""Logs as servers, proxies and clouds write them, and as people copy them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders import logs
from builders.logs import DAY, INFER, PROBE, PROBES, SECOND, came, json_lines

from tuner.errors import SpecError
from tuner.load.traffic.recordings.log_objects import CUT_OFF
from tuner.load.traffic.recordings.log_rows import NO_REQUEST

requests_in = partial(logs.requests_in, by_path=True)


def traefik(at: str, path: str) -> dict[str, Any]:
    times = {
        "StartLocal": f"{DAY}:{at}000001Z",
        "StartUTC": f"{DAY}:{at}000001Z",
        "time": f"{DAY}:59Z",
    }
    return {"Duration": 34_000_000, "RequestPath": path, **times, "request_User-Agent": "x"}


def caddy(at: str, path: str) -> dict[str, Any]:
    return {"ts": SECOND + float(at) + 0.5, "request": {"uri": path}, "duration": 0.5}


def google(at: str, path: str) -> dict[str, Any]:
    request = {"requestUrl": f"https://t.example{path}", "latency": "0.5s"}
    return {"httpRequest": request, "timestamp": f"{DAY}:{at}Z", "receiveTimestamp": f"{DAY}:59Z"}


def kong(at: str, path: str) -> dict[str, Any]:
    latencies = {"request": 500, "kong": 3}
    at_ms = round((SECOND + float(at)) * 1e3)
    return {"started_at": at_ms, "request": {"uri": path}, "latencies": latencies}


def apisix(at: str, path: str) -> dict[str, Any]:
    at_ms = round((SECOND + float(at)) * 1e3)
    return {"start_time": at_ms, "apisix_latency": 0.5, "request": {"uri": path}}


def envoy_gateway(at: str, path: str) -> dict[str, Any]:
    return {"start_time": f"{DAY}:{at}Z", "x-envoy-origin-path": path, "user-agent": "grpc"}


def linkerd(at: str, path: str) -> dict[str, Any]:
    return {"timestamp": f"{DAY}:{at}Z", "uri": path, "processing_ns": "39826"}


def istio(at: str, path: str) -> dict[str, Any]:
    return {"start_time": f"{DAY}:{at}Z", "duration": 500, "path": path, "route_name": None}


def azure(at: str, path: str) -> dict[str, Any]:
    """Written after the answer."""
    answered = f"{DAY}:{float(at) + 0.5:06.3f}Z"
    return {"timeStamp": answered, "properties": {"requestUri": path, "timeTaken": 0.5}}


def gateway(at: str, path: str) -> dict[str, Any]:
    at_ms = round((SECOND + float(at)) * 1e3)
    return {"requestId": "1", "requestTimeEpoch": at_ms, "path": path}


@pytest.mark.parametrize(
    "server", [traefik, caddy, google, kong, apisix, envoy_gateway, linkerd, istio, azure, gateway]
)
def test_json_of_a_known_server_needs_no_options(server: Any, tmp_path: Path) -> None:
    """Times are those when requests came, however the server writes them."""
    rows = [server("01.250", INFER), server("02.000", PROBE), server("03.500", INFER)]
    requests, making = requests_in(tmp_path, json_lines(*rows))
    assert came(requests) == [1.25, 3.5]
    assert [one.row for one in requests] == [{"model": "bert"}] * 2
    assert (making.notes, making.lines) == (PROBES, {})


def test_unit_of_the_user_replaces_that_of_a_known_column(tmp_path: Path) -> None:
    rows = [{**kong("1", INFER), "started_at": SECOND + k} for k in range(2)]
    requests, _ = requests_in(tmp_path, json_lines(*rows), time="started_at", time_unit="s")
    assert came(requests) == [0.0, 1.0]


def test_records_of_aiperf_have_their_unit_in_the_name(tmp_path: Path) -> None:
    rows = [{"metadata": {"request_start_ns": (SECOND + k) * 10**9}} for k in range(2)]
    assert came(requests_in(tmp_path, json_lines(*rows))[0]) == [0.0, 1.0]


IIS = (
    "#Software: Microsoft Internet Information Services 10.0\n"
    "#Fields: date time cs-method cs-uri-stem cs(User-Agent) sc-status time-taken\n"
)
CLOUDFRONT = (
    "#Version: 1.0\n"
    "#Fields: date time x-edge-location cs-method cs-uri-stem cs(User-Agent) time-taken\n"
)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (IIS, "2024-11-28 12:00:0{second} POST {path} {agent} 200 250\n"),
        (
            CLOUDFRONT,
            "2024-11-28\t12:00:0{second}\tFRA56\tPOST\t{path}\t{agent}\t0.250\n",
        ),
    ],
)
def test_w3c_logs_are_read_by_their_fields(text: str, row: str, tmp_path: Path) -> None:
    """IIS writes milliseconds, CloudFront seconds; both write when a request was answered."""
    calls = [(1, INFER, "python"), (2, "/x", "ELB-HealthChecker/2.0"), (3, INFER, "python")]
    for second, path, agent in calls:
        text += row.format(second=second, path=path, agent=agent)
    requests, making = requests_in(tmp_path, text)
    assert came(requests) == [0.75, 2.75]
    assert [one.row for one in requests] == [{"model": "bert"}] * 2
    assert making.notes == PROBES


def test_w3c_fields_may_change_within_a_log(tmp_path: Path) -> None:
    text = "#Fields: date time cs-uri-stem\n2024-11-28 12:00:01 /a\n"
    text += "#Fields: date time time-taken cs-uri-stem\n2024-11-28 12:00:03 500 /a\n"
    assert came(requests_in(tmp_path, text)[0]) == [1.0, 2.5]


def test_w3c_row_of_another_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"log:2:1: 2 values, where #Fields names 3"):
        requests_in(tmp_path, "#Fields: date time cs-uri-stem\n2024-11-28 12:00:01\n")


NGINX = f'10.1.2.3 - - [28/Nov/2024:12:00:01 +0000] "POST {INFER} HTTP/1.1" 200 5 "-" "py" 0.250'
ENVOY = (
    f'[{DAY}:01.250Z] "POST {INFER} HTTP/2" 200 - via_upstream - "-" 154 226 100 99 "-" "py" "c" '
    '"t.example" "10.0.0.9:8001" outbound|8001||t 10.0.0.4:1 10.0.0.4:2 10.0.0.3:3 - default'
)
HTTPS = (
    "10.1.2.3:33317 [28/Nov/2024:12:00:01.250] www~ triton/s1 0/0/1/69/70 200 2750 - - ---- "
    f'5/4/1/1/0 0/0 "POST {INFER} HTTP/1.1" 0/0/0/0/0 -/TLSv1.3/TLS_AES_256_GCM_SHA384'
)
CLASSIC = (
    f"{DAY}:01.250000Z my-lb 10.1.2.3:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "
    f'"POST http://t.example:80{INFER} HTTP/1.1" "python" - -'
)


@pytest.mark.parametrize(
    ("line", "at_s"),
    [
        (NGINX, 0.75),
        (NGINX.replace('"-" "py" 0.250', '"-" "py" 2210 0.250 [ml-triton] [] 10.0.0.7:1 5'), 0.75),
        (NGINX.replace('200 5 "-" "py" 0.250', '5 "-" "py" rt=0.250, uct=0.1'), 0.75),
        (NGINX.replace("10.1.2.3 - - ", "10.1.2.3 ").removesuffix(" 0.250"), 1.0),  # aiohttp
        (ENVOY, 1.25),
        (f"ACCESS {ENVOY}", 1.25),  # Emissary
        (HTTPS, 1.25),
        (CLASSIC, 1.25),
    ],
)
def test_lines_of_usual_servers_are_read(line: str, at_s: float, tmp_path: Path) -> None:
    requests, _ = requests_in(tmp_path, f"{line}\n{line}\n")
    assert came(requests) == [at_s] * 2
    assert [one.row for one in requests] == [{"model": "bert"}] * 2


@pytest.mark.parametrize(
    "before",
    [
        f"{DAY}:59.123456789Z stdout F ",
        "proxy-1  | ",
        f"proxy-1  | {DAY}:59.123456789Z ",
        "[pod/proxy-7f/proxy] ",
        f"{DAY}:59.123456789Z ",
        "Nov 28 12:00:59 web nginx[812]: ",
        f"<134>1 {DAY}:59+00:00 web nginx 812 - - ",
        f"{DAY}:59+0000 web nginx[812]: ",
    ],
)
@pytest.mark.parametrize("line", [NGINX, json.dumps(caddy("0.250", INFER))])
def test_what_collectors_write_before_lines_is_no_part_of_them(
    before: str, line: str, tmp_path: Path
) -> None:
    requests, _ = requests_in(tmp_path, f"{before}{line}\n" * 2)
    assert came(requests) == [0.25 if line.startswith("{") else 0.75] * 2


@pytest.mark.parametrize(
    ("messages", "line"),
    [
        ("/docker-entrypoint.sh: ready for start up\n", NGINX),
        ('---\nNGINX Ingress controller\n---\nI1128 11:59 7 a.go:3] "Starting"\n', NGINX),
        ("[2024-11-28 11:59:57 +0000] [7] [INFO] Booting worker with pid: 9\n", NGINX),
        ('2024/11/28 12:00:00 [error] 29#29: *5 x, request: "GET /x HTTP/1.1"\n', NGINX),
        (f"{DAY}:58.101Z\tinfo\tFLAG: --concurrency=\n", ENVOY),
        (f"{DAY}:58.101Z\tinfo\tFLAG: --concurrency=\n", json.dumps(istio("01.250", INFER))),
        ('{"level": "info", "ts": 1.5, "msg": "serving"}\n', json.dumps(caddy("1", INFER))),
    ],
)
def test_messages_among_requests_are_left_out_and_counted(
    messages: str, line: str, tmp_path: Path
) -> None:
    """Before the first request and between others, as `kubectl logs` prints them."""
    requests, making = requests_in(tmp_path, f"{messages}{line}\n{messages}{line}\n")
    assert len(requests) == 2
    assert making.lines == {NO_REQUEST: 2 * messages.count("\n")}


def test_line_that_a_live_log_ends_in_is_left_out(tmp_path: Path) -> None:
    row = json_lines(istio("01.250", INFER))
    requests, making = requests_in(tmp_path, row + row[:40])
    assert (len(requests), making.lines) == (1, {CUT_OFF: 1})
    with pytest.raises(SpecError, match=r"log:2:\d+: not JSON"):
        requests_in(tmp_path, f"{row}{row[:40]}\n{row}")


def test_rows_without_a_named_column_are_left_out_if_others_have_it(tmp_path: Path) -> None:
    """Gateways of Node write a line when a request comes, and one when it is answered."""
    incoming = {"time": 1000, "req": {"url": "/predict"}, "msg": "incoming request"}
    answered = {"time": 1100, "res": {"statusCode": 200}, "responseTime": 100}
    options = {"time": "time", "time_unit": "ms", "took": "responseTime", "took_unit": "ms"}
    requests, making = requests_in(tmp_path, json_lines(incoming, answered), **options)
    assert [(one.at_s, one.took_s) for one in requests] == [(1.1, 0.1)]
    assert making.lines == {"without the columns that requests have, left out": 1}
    with pytest.raises(SpecError, match="log:1:1: there is no column 'responseTime'"):
        requests_in(tmp_path, json_lines(incoming, incoming), **options)


TCP = "10.0.50.1:6153 [28/Nov/2024:12:00:01.944] grpc_in triton/s1 1/0/4240 28951 -- 3/3/2/1/0 0/0"
NETWORK = f"tls 2.0 {DAY}:01 net/lb/c6 g3 10.1.2.4:5134 10.0.0.1:443 5 2 98 246 - arn - ECDHE"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (f"Nov 28 12:00:01 lb haproxy[1]: {TCP}\n", "HAProxy's TCP format is one", "httplog"),
        (f"{NETWORK}\n", "Network Load Balancer is one connection", "--from triton-trace"),
        (
            'INFO:     Started server\nINFO:     10.0.0.1:52 - "POST /x HTTP/1.1" 200 OK\n',
            "log:2:1: uvicorn's usual lines have no time",
            "--log-config",
        ),
        (
            f'I1128 12:00:01.100000 1 http_server.cc:3452] "HTTP request: 2 {INFER}"\n',
            "it is the log of tritonserver",
            "--from triton-trace",
        ),
        ('{"experiments": [{"experiment": {}}]}\n', "perf_analyzer's export", "Triton's trace"),
        ('{\n  "experiments": [\n    {\n', "perf_analyzer's export", "Triton's trace"),
        ('{"resourceSpans": [{}, {}]}\n', "spans of OpenTelemetry", "--from triton-trace"),
        ('{"data": [{"x": [1]}, {"x": [2]}]}\n', "inputs, and no times", "--from inputs"),
        (f'{NGINX}\n10.1.2.3 "GET /x HTTP/1.1"\n', "log:2:1: a request, but in none", "CSV"),
    ],
)
def test_what_holds_no_requests_with_times_is_refused_with_what_to_give(
    text: str, message: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=message) as refused:
        requests_in(tmp_path, text)
    assert hint in refused.value.hint


PLAIN = f"POST {INFER}"


@pytest.mark.parametrize(
    ("line", "at_s"),
    [
        (f'{DAY}:01,250 - uvicorn.access - INFO - 10.1.2.3:52 - "{PLAIN} HTTP/1.1" 200', 1.25),
        (f'10.42.0.63:51 web.cluster.local - [{DAY}:01.250000491Z] "{PLAIN} HTTP/2.0" 200', 1.25),
        (f'{DAY}:01.25+00:00 heroku[router]: method=POST path="{INFER}" service=18ms', 1.25),
        (f'[GIN] 2024/11/28 - 12:00:01 | 200 | 12.5ms | 10.1.2.3 | POST     "{INFER}"', 1.0),
        (f"{SECOND + 1}.250    45 10.1.2.3 TCP_MISS/200 12 POST http://t:8000{INFER} - -", 1.25),
        (f'28/Nov/2024:13:00:01.250 +0100 {{"{PLAIN}"}}', 1.25),
        (f"{DAY}:01+0000 [INFO] 10.1.2.3:5 (scheme=http,method=POST,path={INFER},type=x) 5ms", 1.0),
        (f'time="{DAY}:01.25Z" level=info msg=request uri={INFER} method=POST', 1.25),
        (f'{DAY}:01.25Z stdout F INFO:     10.1.2.3:52 - "{PLAIN} HTTP/1.1" 200 OK', 1.25),
    ],
)
def test_other_lines_are_read_by_their_first_date(line: str, at_s: float, tmp_path: Path) -> None:
    """If each has a request; whether it is the date of the answer is not known."""
    requests, making = requests_in(tmp_path, f"{DAY}:00 Ready path=/models\n{line}\n{line}\n")
    assert came(requests) == [at_s] * 2
    assert [one.row for one in requests] == [{"model": "bert"}] * 2
    assert [note.partition(":")[0] for note in making.notes] == [
        "the lines have none of the usual formats"
    ]
    assert making.lines == {NO_REQUEST: 1}


@pytest.mark.parametrize("path", [None, "", "-"])
def test_connections_are_no_requests(path: str | None, tmp_path: Path) -> None:
    """A proxy writes them with the columns of requests."""
    rows = [{**istio("01.000", INFER), "path": path}, istio("01.250", INFER)]
    requests, making = requests_in(tmp_path, json_lines(*rows))
    assert came(requests) == [1.25]
    assert making.notes == {"without a path, as connections are, left out": 1}


def test_probes_among_other_lines_are_known_by_their_agent(tmp_path: Path) -> None:
    probe, call = (f'{DAY}:01.250 "GET /x" 200 "{agent}"\n' for agent in ("kube-probe/1.29", "py"))
    requests, making = requests_in(tmp_path, probe + call)
    assert len(requests) == 1
    assert PROBES.items() <= making.notes.items()


@pytest.mark.parametrize(
    ("row", "at_s"),
    [
        ({"@timestamp": f"{DAY}:01.250Z", "url": INFER, "size": 5}, 1.25),
        ({"when": (SECOND + 1) * 10**6, "path": INFER}, 1.0),
        ({"log": f'INFO: 10.1.2.3:5 - "{PLAIN} HTTP/1.1"', "time": f"{DAY}:01.250Z"}, 1.25),
    ],
)
def test_the_only_time_beside_a_path_is_taken_with_a_note(
    row: dict[str, Any], at_s: float, tmp_path: Path
) -> None:
    requests, making = requests_in(tmp_path, json_lines(row, row))
    assert came(requests) == [at_s] * 2
    assert any("is taken for the time of a request" in note for note in making.notes)


@pytest.mark.parametrize("line", [NGINX, json.dumps(gateway("0.750", INFER))])
@pytest.mark.parametrize("names", ["labels,Line", '"Date","Message"', "@timestamp,@message"])
def test_lines_inside_a_table_are_read(names: str, line: str, tmp_path: Path) -> None:
    """As Grafana, Datadog and CloudWatch export them, with messages among them."""
    quoted = line.replace('"', '""')
    text = f"{names}\n{DAY}:59Z,Ready\n" + f'{DAY}:59Z,"{quoted}"\n' * 2
    requests, _ = requests_in(tmp_path, text)
    assert came(requests) == [0.75] * 2
    assert [one.row for one in requests] == [{"model": "bert"}] * 2


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        (
            {"path": "/", "begin": f"{DAY}:01Z", "end_ms": SECOND * 1000},
            "name it: --time begin or --time end_ms --time-unit ms",
        ),
        ({"timestamp": f"{DAY}:01Z", "tokens": 3}, "name it: --time timestamp"),
        ({"log": "Ready", "time": f"{DAY}:01Z"}, "name it: --time time"),
        ({"tokens": 3}, "name it with --time COLUMN"),
    ],
)
def test_columns_that_may_have_the_time_are_named(
    row: dict[str, Any], hint: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match="no column is known to say when") as refused:
        requests_in(tmp_path, json_lines(row, row))
    assert refused.value.hint == hint
