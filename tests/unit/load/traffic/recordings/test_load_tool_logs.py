"""Result files of load generators, recordings of proxies, and lines that tools wrap."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from builders.logs import DAY, INFER, PROBE, SECOND, came, json_lines, requests_in

from tuner.errors import SpecError
from tuner.load.traffic.recordings.access_log import LogColumns, requests_of_log
from tuner.load.traffic.recordings.log_rows import NO_REQUEST
from tuner.load.traffic.recordings.making import Making, make_recording

URL = f"http://triton:8000{INFER}"
NGINX = f'10.1.2.3 - - [28/Nov/2024:12:00:0%d +0000] "POST {INFER} HTTP/1.1" 200 5 "-" "py" 0.250'


def table(names: str, *rows: Iterable[Any]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([names.split(","), *rows])
    return text.getvalue()


def k6(at: str, metric: str, value: float) -> dict[str, Any]:
    tags = {"method": "POST", "url": URL, "status": "200"}
    data = {"time": f"{DAY}:{at}Z", "value": value, "tags": tags}
    return {"metric": metric, "type": "Point", "data": data}


def samples(at: str) -> list[dict[str, Any]]:
    """A request's, at its end; its length is in milliseconds."""
    return [k6(at, "http_reqs", 1), k6(at, "http_req_duration", 250), k6(at, "http_req_failed", 0)]


K6 = "metric_name,timestamp,metric_value,url"
HAR = {"startedDateTime": f"{DAY}:01.250Z", "time": 9, "request": {"method": "POST", "url": URL}}
VEGETA = {"attack": "", "timestamp": f"{DAY}:01.250Z", "latency": 25_000_000, "url": URL}
LATTICE = {"startTime": f"{DAY}:01.250Z", "requestPath": INFER, "duration": 250}
CLOUDFLARE = {"EdgeStartTimestamp": SECOND * 10**9 + 125 * 10**7, "ClientRequestURI": INFER}
CONSOLE = json.dumps({"request": {"uri": INFER}, "duration": 0.25, "status": 200})


@pytest.mark.parametrize(
    ("text", "at_s"),
    [
        (json_lines(*samples("01.500")), 1.25),
        (
            table(
                K6,
                ["http_reqs", SECOND + 2, 1, URL],
                ["http_req_duration", SECOND + 2, 750, URL],
                ["iterations", SECOND + 2, 1, ""],
            ),
            1.25,
        ),
        (json_lines(VEGETA), 1.25),
        (f"\n{table('response-time,DNS+dialup,offset', [0.008, 0.001, 1.25])}", 1.25 - SECOND),
        (table("starttime,seconds,ctime,wait", ["Thu Nov 28", SECOND + 1, 0, 9]), 1.0),
        (json_lines({"count": 1, "details": [{**VEGETA, "url": URL}]}), 1.25),
        (table("timeStamp,elapsed,label,URL", [SECOND * 1000 + 1250, 9, "x", URL]), 1.25),
        (json.dumps({"log": {"version": "1.2", "entries": [HAR]}}), 1.25),
        (json_lines(LATTICE), 1.25),
        (json_lines(CLOUDFLARE), 1.25),
        (json_lines({**CLOUDFLARE, "EdgeStartTimestamp": SECOND + 1}), 1.0),
        (json_lines({**CLOUDFLARE, "EdgeStartTimestamp": f"{DAY}:01Z"}), 1.0),
        (f"1 8f3e {SECOND}250000000 0\nPOST {INFER} HTTP/1.1\r\nHost: t\r\n\r\n{{}}\n🐵\n", 0.25),
        (f"time:28/Nov/2024:12:00:02 +0000\treq:POST {INFER} HTTP/1.1\treqtime:0.750\n", 1.25),
        (f"time:[28/Nov/2024:12:00:01 +0000]\turi:{INFER}\treqtime:-\n", 1.0),
        (f"2024/11/28 12:00:01.500\tINFO\thttp.log.access\thandled request\t{CONSOLE}\n", 1.25),
        (f"proxy-7f caddy {json.dumps({**json.loads(CONSOLE), 'ts': SECOND + 1.5})}\n", 1.25),
        (f"{DAY}:09+00:00\tkube.proxy\t{json.dumps({'log': NGINX % 2})}\n", 1.75),
        (json_lines({"_index": "x", "_source": {"@timestamp": DAY, "message": NGINX % 2}}), 1.75),
        (table("_time,_raw,source", [f"{DAY}:09.000+0000", NGINX % 2, "/var/log/a.log"]), 1.75),
        (table("TimeGenerated [UTC],LogEntry", ["11/28/2024, 12:00", NGINX % 2]), 1.75),
    ],
)
def test_requests_of_tools_need_no_options(text: str, at_s: float, tmp_path: Path) -> None:
    """Times are those when requests came, however the tool writes them."""
    requests, making = requests_in(tmp_path, text)
    assert came(requests) == [at_s]
    assert not [note for note in making.notes if "--time" in note or "--took" in note]


def test_samples_of_other_metrics_are_no_requests(tmp_path: Path) -> None:
    """k6 writes nine of each request; the value is the length of one metric only."""
    declared = {"type": "Metric", "metric": "http_reqs", "data": {"name": "http_reqs"}}
    users = {"metric": "vus", "type": "Point", "data": {"time": f"{DAY}:01Z", "value": 5}}
    rows = [declared, users, *samples("01.250"), *samples("02.500")]
    requests, making = requests_in(tmp_path, json_lines(*rows), by_path=True)
    assert [one.row for one in requests] == [{"model": "bert"}] * 2
    assert making.notes == {"samples of k6's other metrics, left out": 4}
    assert making.lines == {NO_REQUEST: 2}


def test_events_of_responses_are_no_requests(tmp_path: Path) -> None:
    """KServe's logger of payloads writes one of each kind."""
    event = {"specversion": "1.0", "time": f"{DAY}:01.250Z"}
    rows = [
        {**event, "type": f"org.kubeflow.serving.inference.{k}"} for k in ("request", "response")
    ]
    requests, making = requests_in(tmp_path, json_lines(*rows), time="time")
    assert came(requests) == [1.25]
    assert making.notes == {"events other than requests, such as responses, left out": 1}


def test_setup_of_a_load_test_is_no_request(tmp_path: Path) -> None:
    names, at_ms = "timeStamp,elapsed,label,URL", SECOND * 1000
    text = table(names, [at_ms, 9, "setup", "null"], [at_ms, 9, "infer", URL])
    assert len(requests_in(tmp_path, text)[0]) == 1


@pytest.mark.parametrize(
    "line",
    [
        f'10.1.2.3 - - [28/Nov/2024 12:00:01] "POST {INFER} HTTP/1.1" 200 -',
        f'[28/Nov/2024 12:00:01] "POST {INFER} HTTP/1.1" 200 12',
    ],
)
def test_lines_of_development_servers_are_read(line: str, tmp_path: Path) -> None:
    requests, making = requests_in(tmp_path, f" * Debug mode: off\n{line}\n{line}\n")
    assert came(requests) == [1.0, 1.0]
    assert making.lines == {NO_REQUEST: 1}


MATRIX = {"status": "success", "data": {"resultType": "matrix", "result": []}}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (json.dumps(MATRIX), "samples of metrics", "workload.arrivals.rate"),
        (json.dumps(MATRIX, indent=1), "samples of metrics", "workload.arrivals.rate"),
        ("# HELP nv_inference_count Number\nnv_inference_count 5\n", "a page of metrics", "trace"),
        (
            f'{DAY}:01Z I 1 http_server.cc:4509] "HTTP request: 2 {INFER}"\n',
            "it is the log of tritonserver",
            "--from triton-trace",
        ),
        (
            table("Timestamp,User Count,Requests/s,50%,99.9%", [SECOND, 5, 20.5, 40, 90]),
            "totals of a load generator",
            "workload.arrivals.rate",
        ),
        (
            table("Concurrency,Inferences/Second,Client Send", [1, 100.5, 3]),
            "totals of a load generator",
            "workload.arrivals.rate",
        ),
        ("Running 30s test @ http://10.1.2.3:8000\n  2 threads\n", "totals of a", "arrivals.rate"),
        ("\nSummary:\n  Total:\t2.0 secs\n", "totals of a load generator", "arrivals.rate"),
        (json.dumps({"summary": {"successRate": 1.0}}, indent=2), "totals of a", "arrivals.rate"),
        (json.dumps({"RunType": "HTTP", "StartTime": DAY}), "totals of a", "arrivals.rate"),
        (
            table("Model,Batch,Concurrency,Model Config Path", ["m", 1, 4, "m_config_1"]),
            "table of Model Analyzer's results",
            "search: {first: FILE}",
        ),
        (
            table('Time,{model=""bert""}', [f"{DAY}:00", 20]).replace("Time", '"Time"', 1),
            "samples of metrics, as Grafana",
            "workload.arrivals.rate",
        ),
        (
            json.dumps({**MATRIX, "data": {"resultType": "streams", "result": []}}),
            "streams, as Loki's API",
            "jq -r",
        ),
        (
            json.dumps({"data": [{"traceID": "a", "spans": []}]}),
            "spans of OpenTelemetry",
            "--from triton-trace",
        ),
        (json.dumps([{"id": 1, "model_name": "m"}]), "it is Triton's trace", "--from triton-trace"),
        (json.dumps({"resourceMetrics": [{}]}), "metrics of OpenTelemetry", "arrivals.rate"),
        (json.dumps({"resourceLogs": [{}]}), "lines of a log in records of Open", "jq -r"),
        (json.dumps({"model_stats": [{"name": "m"}]}), "Triton's statistics", "trace"),
        (
            "I1128 12:00:01.250123 1 infer_handler.h:1311] New request handler\n",
            "it is the log of tritonserver",
            "--from triton-trace",
        ),
        (
            f'2024/11/28 12:00:01 [error] 7#7: *1 timed out, request: "POST {INFER} HTTP/1.1"\n',
            "nginx's error log",
            "access log",
        ),
    ],
)
def test_totals_and_metrics_are_refused_with_what_to_give(
    text: str, message: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=message) as refused:
        requests_in(tmp_path, text)
    assert hint in refused.value.hint


def test_error_lines_among_requests_in_no_usual_format_are_left_out(tmp_path: Path) -> None:
    line = f"{DAY}:01 sent POST {INFER} to m"
    error = f'2024/11/28 12:00:01 [warn] 7#7: *1 a, request: "POST {INFER} HTTP/1.1"'
    requests, making = requests_in(tmp_path, f"{line}\n{error}\n{line}\n")
    assert came(requests) == [1.0, 1.0]
    assert making.lines == {NO_REQUEST: 1}


def test_log_of_which_nothing_is_left_says_why_and_where(tmp_path: Path) -> None:
    """The most frequent reasons first, each with its first place."""
    probe = (NGINX % 1).replace(INFER, PROBE)
    text = f"ready\nready\nready\n{probe}\n{probe}\n{(NGINX % 1).replace(INFER, '/v2/models')}\n"
    (tmp_path / "log").write_text(text)
    making = Making()
    requests = requests_of_log([tmp_path / "log"], LogColumns(), making)
    with pytest.raises(SpecError) as refused:
        make_recording(requests, tmp_path / "made.jsonl", making)
    assert refused.value.message.replace(f"{tmp_path}/", "").split("; ") == [
        "there is no request to record, and a recording needs two",
        f"3 lines: {NO_REQUEST} (the first at log:1:1)",
        "2 requests: health probes and metrics, left out (the first at log:4:1)",
        "1 request: calls of Triton other than inferences, left out (the first at log:6:1)",
    ]
