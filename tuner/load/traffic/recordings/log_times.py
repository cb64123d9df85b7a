"""The times of requests in logs: columns of usual servers, what their times mean, and units.

Sources: nginx, ngx_http_log_module (`$time_local`, `$msec` and `$request_time` are taken when the
line is written); Envoy, access logging (START_TIME is the start of the request); Traefik, access
logs (StartUTC); Caddy, the `log` directive (`ts` when the request was handled, `duration` in
seconds); Kong, log format of its plugins (`started_at` in milliseconds); APISIX, file-logger
(`start_time` in milliseconds); Linkerd, HTTP access logging (`timestamp` when the request came);
Google, load balancer logs (`timestamp` when the request came); AWS, API Gateway
(`requestTimeEpoch` in milliseconds), VPC Lattice (`startTime` when the request came) and CloudFront
(time when the answer was finished, `time-taken` in seconds); Cloudflare, Logpush
(`EdgeStartTimestamp` when the request came, in a unit of the user's choice); LTSV (`time` and
`reqtime` as nginx writes them); Azure, Application Gateway v2 (`timeTaken` in seconds); IIS
(`time-taken` in milliseconds); HAR 1.2 (`startedDateTime`). Of load generators: AIPerf's profile
export; k6 (`time` is the end, http_req_duration in milliseconds); vegeta (`timestamp` is the
start); hey (`offset` is the start); ab (`seconds` is the start); JMeter (`timeStamp` is the start,
by the properties that come with it).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from tuner.errors import SpecError
from tuner.load.traffic.arrivals import TIME_UNITS, finite
from tuner.load.traffic.recordings.access_formats import DATED, plain_name, without_address
from tuner.plain import plain
from tuner.spec.units import read_quantity

#: Columns of W3C's format as one moment in UTC.
W3C_TIME = "date_time"
#: Column with the nanoseconds of GoReplay.
REPLAY_TIME = "replay_ns"


@dataclass(frozen=True)
class TimeColumn:
    """A column with times.

    Attributes:
        name: Name of the column.
        came: The times are those when requests came.
        took: Column with the duration of a request, if the times are those of the answer.
        unit: Unit of times that are numbers; "": that in which the first one is of this century.
        took_unit: Unit of the durations.
        beside: Another column of the same server, which tells it from others; "" for none.
    """

    name: str
    came: bool = False
    took: str = ""
    unit: str = "s"
    took_unit: str = "s"
    beside: str = ""


#: Of one server the column with the finest resolution first.
KNOWN_TIMES = (
    TimeColumn("start_time", came=True, unit="ms", beside="apisix_latency"),
    TimeColumn("start_time", came=True),
    TimeColumn("StartUTC", came=True, beside="RequestPath"),
    TimeColumn("started_at", came=True, unit="ms", beside="latencies.request"),
    TimeColumn("timestamp", came=True, beside="httpRequest.requestUrl"),
    TimeColumn("timestamp", came=True, beside="processing_ns"),
    TimeColumn("requestTimeEpoch", came=True, unit="ms"),
    TimeColumn("requestTime", came=True, beside="requestId"),
    TimeColumn("EdgeStartTimestamp", came=True, unit=""),
    TimeColumn(REPLAY_TIME, came=True, unit="ns"),
    TimeColumn("startTime", came=True, beside="requestPath"),
    TimeColumn("startedDateTime", came=True, beside="request.url"),
    TimeColumn("metadata.request_start_ns", came=True, unit="ns"),
    TimeColumn("data.time", took="data.value", took_unit="ms", beside="metric"),
    TimeColumn("timestamp", took="metric_value", took_unit="ms", unit="", beside="metric_name"),
    TimeColumn("timestamp", came=True, beside="attack"),
    TimeColumn("offset", came=True, beside="response-time"),
    TimeColumn("seconds", came=True, beside="ctime"),
    TimeColumn("timeStamp", came=True, unit="ms", beside="elapsed"),
    TimeColumn("time", took="reqtime", beside="reqtime"),
    TimeColumn(DATED, took="duration", beside="request.uri"),
    TimeColumn("ts", took="duration", beside="request.uri"),
    TimeColumn("timeStamp", took="properties.timeTaken", beside="properties.requestUri"),
    TimeColumn(W3C_TIME, took="time-taken", beside="x-edge-location"),
    TimeColumn(W3C_TIME, took="time-taken", took_unit="ms"),
    TimeColumn("msec", took="request_time"),
    TimeColumn("time_iso8601", took="request_time"),
    TimeColumn("time_local", took="request_time"),
)

#: Names of columns with lengths of requests, as `plain_name`.
_LENGTH = {
    *("duration", "durationms", "latency", "latencyms", "elapsed", "elapsedms", "elapsedtime"),
    *("responsetime", "responsetimems", "processingtime", "timetaken", "upstreamresponsetime"),
}
_LENGTHS = {unit: Decimal(str(size)) for unit, size in TIME_UNITS.items()}
#: Seconds since 1970: no log has a later time.
_LATEST_S = 1e11
#: A time zone as BigQuery and Ruby write it, after a space.
_ZONE = re.compile(r"(?<=\d) (UTC|GMT|[+-]\d\d:?\d\d)$")


def known_time(row: Mapping[str, Any], name: str = "") -> TimeColumn | None:
    """The known column with times of a row, or what is known of the one with this name."""
    return _known_time(tuple(row), name)


@lru_cache(maxsize=256)
def _known_time(names: tuple[str, ...], wanted: str) -> TimeColumn | None:
    for column in KNOWN_TIMES:
        fits = column.name == wanted if wanted else column.name in names
        if fits and (not column.beside or column.beside in names):
            return column
    return None


def likely_times(row: Mapping[str, Any]) -> list[TimeColumn]:
    """Columns whose values are dates, or numbers of seconds since 1970 in some unit."""
    columns = []
    for name, given in row.items():
        number, text = finite(given), str(given)
        if number is None:
            with suppress(ValueError):
                if _LONG_DATE.match(text):
                    moment_s(text)
                    columns.append(TimeColumn(name))
        if unit := "" if number is None else _likely_unit(number):
            columns.append(TimeColumn(name, unit=unit))
    return columns


def _likely_unit(number: float) -> str:
    """The unit in which a number is a time of this century; empty if there is none."""
    likely = (unit for unit, size in TIME_UNITS.items() if _EARLIEST_S <= number * size < _SOON_S)
    return next(likely, "")


#: Of a date with a time.
_LONG_DATE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d|\[?\d+/[A-Za-z]{3}/\d{4}[: ]")
#: Of 2001 and 2096, between which numbers are likely to be times.
_EARLIEST_S, _SOON_S = 1e9, 4e9


def length_column(row: Mapping[str, Any]) -> str:
    """The column that seems to have the duration of a request; empty if there is none."""
    return next((name for name in row if plain_name(name) in _LENGTH), "")


def length_s(given: Any, unit: str) -> float | None:
    """Seconds of ``0.5``, in the unit, or of ``34ms``; None for anything else, such as ``-``."""
    length = finite(given)
    if length is not None:
        return length * TIME_UNITS[unit] if length >= 0.0 else None
    try:
        quantity = read_quantity(str(given).replace("µ", "u"), _LENGTHS)
    except ValueError:
        return None
    return None if quantity is None else float(quantity)


def time_s(given: Any, column: str, unit: str, place: str) -> float:
    """Seconds since 1970 of a number in the unit, or of a date.

    Raises:
        SpecError: It is neither, or the unit cannot be right.
    """
    number = finite(given)
    if number is None:
        try:
            return moment_s(str(given))
        except ValueError as error:
            message = (
                f"{place}: {column} is neither a number nor an ISO 8601 date: "
                f"{without_address(given)}"
            )
            raise SpecError(plain(message)) from error
    at_s = number * TIME_UNITS[unit or _likely_unit(number) or "s"]
    if at_s > _LATEST_S:
        likely = next((u for u, size in TIME_UNITS.items() if number * size <= _LATEST_S), "ns")
        raise SpecError(
            plain(f"{place}: {column} {number:.15g} in {unit} is later than the year 5000"),
            f"name the unit of these times: --time-unit {likely}",
        )
    return at_s


def moment_s(text: str) -> float:
    """Seconds since 1970 for a date in ISO 8601, or as nginx and HAProxy write it.

    A date without a time zone counts as UTC: this machine's zone may not be the log's.

    Raises:
        ValueError: It is not a date.
    """
    if match := _SERVER_DATE.fullmatch(text):
        day, month, year, time, zone = match.groups()
        text = f"{year}-{_MONTHS.get(month, '')}-{day:0>2}T{time}{zone or ''}"
    moment = datetime.fromisoformat(_ZONE.sub(_as_iso, text))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


#: Of a date as nginx, HAProxy, or werkzeug writes it.
_SERVER_DATE = re.compile(
    r"\[?(\d{1,2})/([A-Z][a-z]{2})/(\d{4})[: ](\d\d:\d\d:\d\d(?:\.\d+)?)(?: ([+-]\d{4}))?\]?"
)
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: f"{number:02d}" for number, name in enumerate(_NAMES, 1)}


def _as_iso(zone: re.Match[str]) -> str:
    return "+00:00" if zone[1].isalpha() else zone[1]
