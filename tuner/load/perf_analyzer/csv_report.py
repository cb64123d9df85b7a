"""The CSV perf_analyzer writes with ``-f`` and ``--verbose-csv``: one row, averages in us."""

from __future__ import annotations

import csv
import math
from dataclasses import astuple, dataclass
from pathlib import Path

from tuner.errors import LoadFailedError

_COLUMNS = (
    "Inferences/Second",
    "Avg latency",
    *(f"p{percent} latency" for percent in (50, 90, 95, 99)),
    "Client Send",
    "Client Recv",
    "Network+Server Send/Recv",
)


@dataclass(frozen=True)
class WindowReport:
    """perf_analyzer's own figures, over its three windows together; in the order of `_COLUMNS`."""

    throughput_infer_per_s: float
    avg_latency_us: float
    p50_latency_us: float
    p90_latency_us: float
    p95_latency_us: float
    p99_latency_us: float
    client_send_us: float
    client_recv_us: float
    network_us: float


def read(path: Path) -> WindowReport:
    """Reads the report.

    Raises:
        LoadFailedError: It is missing, empty, or a column is (another version's layout).
    """
    try:
        with path.open(newline="") as file:
            row = next(csv.DictReader(file))
        report = WindowReport(*(float(row[column]) for column in _COLUMNS))
        if not all(math.isfinite(value) for value in astuple(report)):
            raise ValueError("a figure is no finite number")
        return report
    except (OSError, StopIteration) as error:
        raise LoadFailedError("perf_analyzer wrote no report") from error
    except (KeyError, ValueError, TypeError, csv.Error) as error:
        raise LoadFailedError(f"perf_analyzer's report cannot be read: {error}") from error
