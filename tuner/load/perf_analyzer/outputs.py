"""What perf_analyzer and the model say: its report as CSV, and its words about a failure.

The CSV of ``-f`` and ``--verbose-csv`` has one row, with averages in microseconds.
"""

from __future__ import annotations

import csv
import math
import re
from dataclasses import astuple, dataclass
from pathlib import Path

from tuner.errors import LoadFailedError

_ERROR = re.compile(r"^(error: |Failed to |No valid requests|Thread \[\d+\] had error: ).*", re.M)
_THREAD = re.compile(r"^Thread \[\d+\] had error: ")
#: perf_analyzer's own words around those of the model, and Triton's around the model's.
_AROUND = re.compile(
    r"Failed to retrieve results from inference request\.?\s*"
    r"|Failed to process the request\(s\) for model (instance )?'[^']*', message: "
)
#: How perf_analyzer announces what it is about to do: no reason for a failure.
_PREAMBLE = re.compile(
    r"^(\*|Using |Service Kind|Batch size|Measurement|Minimum|Stabiliz|Request|Concurrency|"
    r"Latency limit|Sending |Inferences)"
)

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


def read_report(path: Path) -> WindowReport:
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


def tells_of_error(text: str) -> bool:
    """Whether perf_analyzer's output holds an error."""
    return _ERROR.search(text) is not None


def useful_words(text: str) -> str:
    """perf_analyzer's reason out of its output: its error lines, each once, threads aside."""
    reasons = _reasons(text)
    if reasons:
        return " ".join(reasons)
    last = [line.strip() for line in text.splitlines() if line.strip()][-1:]
    if not last:
        return "it said nothing"
    return "it gave no reason" if _PREAMBLE.match(last[0]) else last[0]


def model_words(text: str) -> str:
    """What the model answered instead of a result; empty when the output does not tell."""
    bare = dict.fromkeys(map(bare_words, _reasons(text)))
    return "; ".join(words for words in bare if words)


def bare_words(error: str) -> str:
    """A model's own words out of an error of the server: the first line, nothing around it."""
    return _AROUND.sub("", error).strip().partition("\n")[0]


def _reasons(text: str) -> list[str]:
    lines = [match[0].removeprefix("error: ").strip() for match in _ERROR.finditer(text)]
    return list(dict.fromkeys(_THREAD.sub("", line) for line in lines))
