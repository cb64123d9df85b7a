"""Formats of access logs: lines of common servers, and which of them are inferences.

Sources: nginx, ngx_http_log_module (format combined); Envoy, access logging (default format);
HAProxy, configuration manual, log formats (the date is that of the request's first byte); Traefik,
access logs (format CLF; the time is that of the start); AWS, access logs of an Application Load
Balancer (request_creation_time), of a Classic and of a Network Load Balancer.
What times mean is in `log_times`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_DAY = r"\d+/[A-Za-z]{3}/\d{4}[: ]\d\d:\d\d:\d\d"
#: Common formats by name, with the server's variables as columns. The rest of a line is ignored,
#: except for the duration of a request in seconds, which many users add to nginx's format.
FORMATS = {
    "Traefik": re.compile(
        rf'(?:[^"\[]+ )?\[(?P<start_time>{_DAY} [+-]\d{{4}})\] '
        r'"(?P<request>[^"]*)" (?:\d{3}|-) (?:\d+|-) "[^"]*" "(?P<user_agent>[^"]*)" '
        r'\d+ "[^"]*" "[^"]*" \d+ms'
    ),
    "nginx": re.compile(
        rf'(?:[^"\[]+ )?\[(?:(?P<time_local>{_DAY} [+-]\d{{4}})'
        r"|(?P<time_iso8601>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d))\] "
        r'(?:\S+ )?"(?P<request>[^"]*)" (?:\d+|-)(?: (?:\d+|-))?(?= |$)'
        r'(?: "[^"]*" "(?P<http_user_agent>[^"]*)")?'
        r'(?:.*?[ =("](?P<request_time>\d+\.\d{3})(?=[ "),;]|$))?.*'
    ),
    "Envoy": re.compile(
        r'(?:\w+ )?\[(?P<start_time>\d{4}-\d\d-\d\dT[\d:.]+Z)\] "(?P<request>[^"]*)" \d+ \S+ '
        r'.*?(?:\d+|-) (?:\d+|-) (?P<duration>\d+|-) (?:\d+|-) "[^"]*" "(?P<user_agent>[^"]*)".*'
    ),
    "HAProxy": re.compile(
        rf"(?:.* )?\S+:\d+ \[(?P<start_time>{_DAY}\.\d{{3}})\] "
        r'\S+ \S+ [-+/\d]+ -?\d+ \+?\d+ [^"]*"(?P<request>[^"]*)".*'
    ),
    "AWS's load balancer": re.compile(
        r"\S+ \d{4}-\d\d-\d\dT[\d:.]+Z \S+ \S+:\d+ \S+ (?:-?[\d.]+ ){3}\S+ \S+ \d+ \d+ "
        r'"(?P<request>[^"]*)" "(?P<user_agent>[^"]*)" .* '
        r"(?P<start_time>\d{4}-\d\d-\d\dT[\d:.]+Z) .*"
    ),
    "AWS's Classic Load Balancer": re.compile(
        r"(?P<start_time>\d{4}-\d\d-\d\dT[\d:.]+Z) \S+ \S+:\d+ \S+ (?:-?[\d.]+ ){3}"
        r'\S+ \S+ \d+ \d+ "(?P<request>[^"]*)" "(?P<user_agent>[^"]*)" .*'
    ),
}
#: The column with the first date of any other line that also has a request.
DATED = "date of the line"
_DATE = re.compile(
    r"(?<![\d.])(?:(?P<year>\d{4})[-/](?P<day>\d\d[-/]\d\d)(?:T| - | )"
    r"(?P<hour>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)"
    rf"|(?P<clf>{_DAY}(?:\.\d+)?(?: [+-]\d{{4}})?)"
    r"|(?P<epoch>1\d{9}\.\d{3,6}))(?!\d)"
)
_METHOD = r"\b(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)\b"
_PATH = r"(?:https?:/)?/[^\s\",;)]*"
_REQUEST_IN_LINE = re.compile(
    rf"{_METHOD}[\"|,]* *(?:\w+=)?\"?({_PATH})|\b(?:path|uri|url)=\"?({_PATH})"
)
#: A line of nginx's error log, which may quote a request.
_OF_ERROR_LOG = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[\w+\] \d+#\d+: ")
_GIVE_REQUESTS = "write their highest rate as workload.arrivals.rate, or give a log of requests"
_GIVE_LOG = "give the log of a server or proxy, or Triton's trace (--from triton-trace)"
_WRITE_LINES = "write the lines into a file, and give this: jq -r "
_GIVE_RATE = "write a rate as workload.arrivals.rate, or give a log of requests"
_TOTALS = "it has totals of a load generator, and no requests"
#: Lines whose requests cannot be recorded: why, and what to do.
WITHOUT_REQUESTS = (
    (
        _OF_ERROR_LOG,
        "it is nginx's error log, which has failures only",
        "give its access log",
    ),
    (
        # of wrk, hey, vegeta, ab and bombardier; tables of Locust and perf_analyzer
        re.compile(
            r"Running \d+\w+ test @ |Summary:$|Requests +\[total|This is ApacheBench|Bombarding "
            r"|Timestamp,User Count,|Type,Name,Request Count,"
            r"|(?:Concurrency|Request Rate),Inferences"
        ),
        _TOTALS,
        _GIVE_RATE,
    ),
    (
        re.compile("Model,Batch,Concurrency,"),
        "it is a table of Model Analyzer's results, and has no requests",
        "let it choose the first configs: search: {first: FILE} in a spec",
    ),
    (
        re.compile(r'"?Time"?,.*\w=""'),
        "it has samples of metrics, as Grafana gives them, and no requests",
        _GIVE_REQUESTS,
    ),
    (
        re.compile(rf"\S+:\d+ \[{_DAY}\.\d{{3}}\] \S+ \S+ (?:-?\d+/){{2}}\+?-?\d+ \+?\d+ \S\S "),
        "a line of HAProxy's TCP format is one connection, which may carry many requests",
        "log requests: mode http with option httplog",
    ),
    (
        re.compile(r"tls \d\.\d \S+ net/\S+ "),
        "a line of AWS's Network Load Balancer is one connection, which may carry many requests",
        "give the log of a server or proxy behind it, or Triton's trace (--from triton-trace)",
    ),
    (
        re.compile(r"# (?:HELP|TYPE) \S+"),
        "it is a page of metrics, which counts requests and says nothing of each",
        _GIVE_LOG,
    ),
    (
        re.compile(
            r"(?:[IWE]\d{4} [\d:.]+|\d{4}-\d\d-\d\dT[\d:]+Z [IWE]) +\d+ \S+\.(?:cc|h):\d+\]"
        ),
        "it is the log of tritonserver, which is no record of requests",
        "let it trace them (docs/recordings.md), and give the trace with --from triton-trace",
    ),
    (
        re.compile(r'INFO: +\S+ - "[A-Z]+ \S+ HTTP/'),
        "uvicorn's usual lines have no time",
        "let it write %(asctime)s before them (uvicorn --log-config), or give a proxy's log",
    ),
)
_RESULT = r'\{\s*"status"\s*:\s*"success"\s*,\s*"data"\s*:\s*\{\s*"resultType"\s*:\s*'
#: Beginnings of JSON documents that hold no requests of clients: what they are, and what to do.
DOCUMENTS = (
    (
        re.compile(r'\{\s*"experiments"\s*:\s*\['),
        "it is perf_analyzer's export, of requests that perf_analyzer sent itself",
        "give what your clients sent: the log of a server or proxy, or Triton's trace",
    ),
    (
        re.compile(
            r'\{\s*"(?:resourceSpans|batches)"\s*:\s*\[|(?:\{\s*"data"\s*:\s*)?\[\s*\{\s*"traceI[dD]"'
        ),
        "it has spans of OpenTelemetry",
        "read it with --from triton-trace",
    ),
    (
        re.compile(r'\{\s*"data"\s*:\s*\['),
        "it has inputs, and no times",
        "read it with --from inputs and a --rate",
    ),
    (
        re.compile(r'\[\s*\{\s*"id"\s*:\s*\d+\s*,\s*"(?:model_name|timestamps|activity)"'),
        "it is Triton's trace",
        "read it with --from triton-trace",
    ),
    (
        re.compile(r'\{\s*"resourceMetrics"\s*:\s*\['),
        "it has metrics of OpenTelemetry, and no requests",
        _GIVE_REQUESTS,
    ),
    (
        re.compile(r'\{\s*"resourceLogs"\s*:\s*\['),
        "it has lines of a log in records of OpenTelemetry",
        _WRITE_LINES + "'.resourceLogs[].scopeLogs[].logRecords[].body.stringValue'",
    ),
    (
        re.compile(r'\{\s*"model_stats"\s*:\s*\['),
        "it has Triton's statistics, which count requests and say nothing of each",
        _GIVE_LOG,
    ),
    (
        re.compile(rf'{_RESULT}"streams"'),
        "it has lines of a log in streams, as Loki's API gives them",
        _WRITE_LINES + "'.data.result[].values[][1]'",
    ),
    (
        re.compile(_RESULT),
        "it has samples of metrics, as Prometheus gives them, and no requests",
        _GIVE_REQUESTS,
    ),
    (
        # of oha, bombardier, Artillery, Fortio, autocannon and k6
        re.compile(
            r'\{\s*"(?:summary"\s*:\s*\{\s*"successRate|spec"\s*:\s*\{\s*"numberOfConnections'
            r'|aggregate"\s*:\s*\{\s*"counters|RunType"|url"\s*:[^,]*,\s*"connections'
            r'|(?:root_group|metrics)"\s*:\s*\{)'
        ),
        _TOTALS,
        _GIVE_RATE,
    ),
)
#: Names of the list of rows in a JSON document: of Azure, AWS, Elasticsearch, Google and HAR, ghz.
LISTS_OF_ROWS = ("records", "events", "hits", "entries", "details")


#: Columns with the path or the request line, and with the user agent; names as `plain_name`.
_REQUEST = {
    *("request", "requesturi", "uri", "path", "url"),
    *("requestpath", "requesturl", "httppath", "httpurl", "csuristem", "xenvoyoriginpath"),
    *("clientrequesturi", "clientrequestpath", "req", "reqpath"),
}
_AGENT = {
    *("httpuseragent", "useragent", "agent", "requestuseragent", "ua", "csuseragent"),
    *("clientrequestuseragent",),
}
#: Columns that distinguish the rows of requests from others: the column, another one of the same
#: program, the values for requests, and why others are left out.
_KINDS = (
    (
        "metric",
        "data.time",
        re.compile("(?:http|grpc)_req_duration"),
        "samples of k6's other metrics, left out",
    ),
    (
        "metric_name",
        "metric_value",
        re.compile("(?:http|grpc)_req_duration"),
        "samples of k6's other metrics, left out",
    ),
    (
        "type",
        "specversion",
        re.compile(r".*\.request"),
        "events other than requests, such as responses, left out",
    ),
)
_TRITON = re.compile(r"/v2(?:/|$)|/inference\.GRPCInferenceService/|/grpc\.health\.")
_INFERENCE = re.compile(
    r"/v2/models/(?P<model>[^/]+)(?:/versions/[^/]+)?/(?:infer|generate|generate_stream)$"
    r"|/inference\.GRPCInferenceService/Model(?:Stream)?Infer$"
)
_PROBE_PATH = re.compile(r"/(?:health|healthz|healthcheck|livez?|ready|readyz|ping|metrics)(?:/|$)")
_PROBES = "kube-probe|ELB-HealthChecker|GoogleHC|Prometheus|Consul"
_PROBE_AGENT = re.compile(rf"^(?:{_PROBES})\b", re.I)
_PROBE_IN_LINE = re.compile(rf"(?<![\w/-])((?:{_PROBES})/\d)")
#: An IP address of version 4 or 6, or an email address.
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+|(?:[0-9a-fA-F]{0,4}:){3,7}[0-9a-fA-F]{0,4}|::|\S+@\S+")


@dataclass(frozen=True)
class LoggedCall:
    """What a line shows about a request.

    Attributes:
        left_out: Why it is not an inference; empty if it is one, as far as the line shows.
        model: Name of the model in the path; empty without one.
    """

    left_out: str = ""
    model: str = ""


def call_of(row: Mapping[str, Any]) -> LoggedCall:
    """Classifies a line: health probes, metrics and other calls do not belong to a load."""
    columns = _columns(tuple(row))
    for name, requests, others in columns.kinds:
        if not requests.fullmatch(str(row[name])):
            return LoggedCall(others)
    given = [row[name] for name in columns.requests]
    if given and all(value in _NO_PATH for value in given):
        return LoggedCall("without a path, as connections are, left out")
    lines = [str(value).split() for value in given]
    paths = [words[min(1, len(words) - 1)].partition("?")[0] for words in lines if words]
    for path in paths:
        if match := _INFERENCE.search(path):
            return LoggedCall(model=match["model"] or "")
    agents = [str(row[name]) for name in columns.agents]
    if any(map(_PROBE_AGENT.search, agents)) or any(map(_PROBE_PATH.search, paths)):
        return LoggedCall("health probes and metrics, left out")
    of_triton = any(map(_TRITON.search, paths))
    return LoggedCall("calls of Triton other than inferences, left out" if of_triton else "")


#: Values of a path where there is none; JMeter writes "null".
_NO_PATH = (None, "", "-", "null")


@dataclass(frozen=True)
class _Columns:
    """Names of the columns that classify a row; ``kinds``: with the values that requests have."""

    requests: tuple[str, ...]
    agents: tuple[str, ...]
    kinds: tuple[tuple[str, re.Pattern[str], str], ...]


@lru_cache(maxsize=256)
def _columns(names: tuple[str, ...]) -> _Columns:
    return _Columns(
        tuple(name for name in names if plain_name(name) in _REQUEST),
        tuple(name for name in names if plain_name(name) in _AGENT),
        tuple(
            (name, requests, others)
            for name, beside, requests, others in _KINDS
            if {name, beside} <= {*names}
        ),
    )


def path_in(line: str) -> str:
    """The path of the request in a line; empty without one."""
    match = _REQUEST_IN_LINE.search(line)
    if match is None or not (match[1] or re.search(_METHOD, line)):
        return ""
    return match[1] or match[2]


def dated_row(line: str) -> dict[str, str] | None:
    """The first date of a line, and the path of its request; None if it lacks one of these."""
    date, path = date_in(line), path_in(line)
    if not date or not path or _OF_ERROR_LOG.match(line):
        return None
    probe = _PROBE_IN_LINE.search(line)
    return {DATED: date, "path": path, **({"agent": probe[1]} if probe else {})}


def date_in(line: str) -> str:
    """The first date of a line; empty without one."""
    date = _DATE.search(line)
    if date is None:
        return ""
    iso = f"{date['year']}-{str(date['day']).replace('/', '-')}T{date['hour']}"
    return date["clf"] or date["epoch"] or iso


def has_path(row: Mapping[str, Any]) -> bool:
    """Whether a column has the path of a request."""
    return bool(_columns(tuple(row)).requests)


def has_request(line: str) -> bool:
    """Whether a line has a request, other than in a message about it."""
    return _QUOTED_REQUEST.search(line) is not None


_QUOTED_REQUEST = re.compile(
    r'(?<!request: )"(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|CONNECT) [^"]*"'
)


@lru_cache(maxsize=4096)
def plain_name(column: str) -> str:
    """``requestpath`` for ``RequestPath``, for ``path`` in an object ``request``, and so on."""
    return re.sub(r"[^a-z]", "", column.rpartition(".")[2].lower())


def row_of(line: str, known: str) -> dict[str, str] | None:
    """The columns of a line in a format, by its name; None if the line has another format."""
    match = FORMATS[known].fullmatch(line.rstrip("\r\n"))
    return None if match is None else {k: v for k, v in match.groupdict().items() if v is not None}


def format_of(line: str) -> str | None:
    """The name of a line's format; None for an unknown one."""
    return next((name for name in FORMATS if row_of(line, name) is not None), None)


def without_runtime(line: str) -> str:
    """A line without what runtimes and collectors of logs write before it."""
    return _BEFORE.sub("", line, count=1)


_BEFORE = re.compile(
    r"^(?:\d{4}-\d\d-\d\dT\S+ (?:stdout|stderr) [FP] "  # Kubernetes' runtimes
    r"|[\w.-]+ +\| (?:\d{4}-\d\d-\d\dT\S+ )?"  # docker compose logs
    r"|\[pod/[^\]]+\] "  # kubectl logs --prefix
    r"|\d{4}-\d\d-\d\dT\S+ (?:[^\s{]\S* )?(?=\{)"  # a time before JSON
    r"|<\d{1,3}>1 (?:\S+ ){5}(?:-|\[[^\]]*\]) "  # RFC 5424
    r"|(?:<\d{1,3}>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) "
    r"[\w.-]+ [\w./-]+(?:\[\d+\])?: )"  # syslog and journalctl
)


def without_address(value: object) -> str:
    """A value of a log for a message: shortened, and without addresses."""
    text = repr(value)
    return "(an address)" if _ADDRESS.search(text) else text[:40]
