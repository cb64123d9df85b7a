"""What is known of access logs: lines of nginx and Envoy, what their times mean, what is a probe.

Sources: nginx, ngx_http_log_module (format combined; `$time_local`, `$msec` and `$request_time` are
of the moment when the line is written); Envoy, access logging (default format; START_TIME is when
the request began, DURATION is in milliseconds).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

#: The usual formats by name, with the variables of the server as columns. What follows is ignored,
#: but for the seconds that a request took, which many add to nginx's.
FORMATS = {
    "nginx": re.compile(
        r'\S+ \S+ (?:[^"\[]*)\[(?P<time_local>\d+/[A-Za-z]{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] '
        r'(?:\S+ )?"(?P<request>[^"]*)" (?P<status>\d{3}) (?:\d+|-)'
        r'(?: "[^"]*" "(?P<http_user_agent>[^"]*)")?'
        r'(?:.*?[ =("](?P<request_time>\d+\.\d{3})(?=[ ")]|$))?.*'
    ),
    "Envoy": re.compile(
        r'\[(?P<start_time>\d{4}-\d\d-\d\dT[\d:.]+Z)\] "(?P<request>[^"]*)" (?P<status>\d+) \S+ '
        r'.*?(?:\d+|-) (?:\d+|-) (?P<duration>\d+|-) (?:\d+|-) "[^"]*" "(?P<user_agent>[^"]*)".*'
    ),
}


@dataclass(frozen=True)
class TimeColumn:
    """A column whose name says what its times are.

    Attributes:
        took: The column with the seconds until then, where times are those of the answer.
    """

    name: str
    took: str = ""


#: The finest first.
KNOWN_TIMES = (
    TimeColumn("start_time"),
    TimeColumn("msec", "request_time"),
    TimeColumn("time_iso8601", "request_time"),
    TimeColumn("time_local", "request_time"),
)
_REQUEST = ("request", "request_uri", "uri", "path", "url")
_AGENT = ("http_user_agent", "user_agent", "agent")
_TRITON = re.compile(r"/v2(?:/|$)|/inference\.GRPCInferenceService/|/grpc\.health\.")
_INFERENCE = re.compile(
    r"/v2/models/(?P<model>[^/]+)(?:/versions/[^/]+)?/(?:infer|generate|generate_stream)$"
    r"|/inference\.GRPCInferenceService/Model(?:Stream)?Infer$"
)
_PROBE_PATH = re.compile(r"/(?:health|healthz|healthcheck|livez?|ready|readyz|ping|metrics)(?:/|$)")
_PROBE_AGENT = re.compile(r"^(?:kube-probe|ELB-HealthChecker|GoogleHC|Prometheus|Consul)\b", re.I)
#: An address: of IP version 4 or 6, or of electronic mail.
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+|(?:[0-9a-fA-F]{0,4}:){3,7}[0-9a-fA-F]{0,4}|::|\S+@\S+")


@dataclass(frozen=True)
class LoggedCall:
    """What a line says of a request.

    Attributes:
        left_out: Why it is no inference; empty where it is one, as far as is known.
        model: By the path; empty where that does not say it.
    """

    left_out: str = ""
    model: str = ""


def call_of(row: Mapping[str, Any]) -> LoggedCall:
    """Health probes, metrics and other calls than inferences have no place in a load."""
    given = next((str(row[name]) for name in _REQUEST if name in row), "")
    words = given.split()
    path = (words[1] if len(words) > 1 else given).partition("?")[0]
    if match := _INFERENCE.search(path):
        return LoggedCall(model=match["model"] or "")
    agent = next((str(row[name]) for name in _AGENT if name in row), "")
    if _PROBE_AGENT.search(agent) or _PROBE_PATH.search(path):
        return LoggedCall("health probes and metrics, left out")
    return LoggedCall(
        "calls of Triton that are no inference, left out" if _TRITON.search(path) else ""
    )


def row_of(line: str, known: str) -> dict[str, str] | None:
    """A line of a format by its name, as columns; None: it is none."""
    match = FORMATS[known].fullmatch(line.rstrip("\r\n"))
    return None if match is None else {k: v for k, v in match.groupdict().items() if v is not None}


def format_of(line: str) -> str | None:
    """The name of the format that a line has."""
    return next((name for name in FORMATS if row_of(line, name) is not None), None)


def moment_s(text: str) -> float:
    """Seconds since 1970 of a date as of ISO 8601, or as nginx writes it.

    Raises:
        ValueError: It is none.
        OverflowError, OSError: It is of the year 1, or 9999.
    """
    if text[2:3] == "/" or text[1:2] == "/":
        return datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z").timestamp()
    return datetime.fromisoformat(text).timestamp()


def without_address(value: object) -> str:
    """A value of a log, to be shown: short, and nobody's address."""
    text = repr(value)
    return "(an address)" if _ADDRESS.search(text) else text[:40]
