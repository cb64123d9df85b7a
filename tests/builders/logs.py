"""Logs of requests, and what is read of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tuner.load.traffic.recordings.access_log import LogColumns, requests_of_log
from tuner.load.traffic.recordings.making import LoggedRequest, Making

INFER, PROBE = "/v2/models/bert/infer", "/v2/health/ready"
#: The minute of all times, in seconds and as text.
SECOND = 1_732_795_200
DAY = "2024-11-28T12:00"
PROBES = {"health probes and metrics, left out": 1}


def requests_in(directory: Path, text: str, **columns: Any) -> tuple[list[LoggedRequest], Making]:
    (directory / "log").write_text(text)
    making = Making()
    return list(requests_of_log([directory / "log"], LogColumns(**columns), making)), making


def came(requests: list[LoggedRequest]) -> list[float]:
    """When requests came, from the second that all times are in."""
    return [round(one.at_s - one.took_s - SECOND, 6) for one in requests]


def json_lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)
