"""Reads perf_analyzer's output: its export, its report, and error messages of it and the model.

The export has the time at which each request was sent and answered. It also has every request's
tensors and may be large, so it is not parsed: the file is mapped into memory and searched for time
stamps. JSON escapes quotes inside strings, so the patterns cannot match within a tensor's content.

The report (CSV, of ``-f`` and ``--verbose-csv``) has one row, with averages in microseconds.
"""

from __future__ import annotations

import csv
import math
import mmap
import os
import re
from pathlib import Path

import numpy as np

from tuner.errors import LoadFailedError
from tuner.load.client.job import is_lost
from tuner.load.latency import AnsweredRequests
from tuner.spec.units import count_text

_SENT = re.compile(rb'\{"timestamp":(\d+),"')
_ANSWERED = re.compile(rb'"response_timestamps":\[([\d,]+)\]')
_BOUNDARIES = re.compile(rb'"window_boundaries":\[([\d,]+)\]')
_END = re.compile(rb'\],"version":"[^"]*"[^\[\]{}]*\}\s*$')
_TAIL_BYTES = 512

#: perf_analyzer 2.51 prints the reason of a usage error before its usage; later versions after it.
_ERROR = re.compile(
    r"^([eE]rror: |Failed to |No valid requests|Thread \[\d+\] had error: |\S*perf_analyzer: ).*",
    re.M,
)
_PREFIX = re.compile(r"^([eE]rror: |\S*perf_analyzer: )")
_THREAD = re.compile(r"^Thread \[\d+\] had error: ")
#: The text that perf_analyzer and Triton put around a model's own message.
_AROUND = re.compile(
    r"Failed to retrieve results from inference request\.?\s*"
    r"|Failed to process the request\(s\) for model (instance )?'[^']*', message: "
)
#: Lines in which perf_analyzer announces its next steps; none is the reason of a failure.
_PREAMBLE = re.compile(
    r"^(\*|Using |Service Kind|Batch size|Measurement|Minimum|Stabiliz|Request|Concurrency|"
    r"Latency limit|Sending |Inferences)"
)

#: The report's columns by the names in `Measurement`; times are in microseconds.
_COLUMNS = {
    "throughput_infer_per_s": "Inferences/Second",
    "avg_latency_us": "Avg latency",
    **{f"p{percent}_latency_us": f"p{percent} latency" for percent in (50, 90, 95, 99)},
    "client_send_us": "Client Send",
    "client_recv_us": "Client Recv",
    "network_us": "Network+Server Send/Recv",
}


def is_complete(path: Path) -> bool:
    """Whether perf_analyzer has written the whole file."""
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            return _END.search(file.read()) is not None
    except FileNotFoundError:
        return False


def read_export(path: Path) -> AnsweredRequests:
    """Reads the time stamps of an export.

    Raises:
        LoadFailedError: There are no time stamps, or no pairs of them.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            # Copies first: a match, also one in a traceback, keeps the map from being closed.
            sent_texts = [m[1] for m in _SENT.finditer(data)]
            answer_texts = [m[1].rpartition(b",")[2] for m in _ANSWERED.finditer(data)]
            boundary_texts = [n for m in _BOUNDARIES.finditer(data) for n in m[1].split(b",")]
        sent = np.array([int(n) for n in sent_texts], dtype=np.int64)
        answered = np.array([int(n) for n in answer_texts], dtype=np.int64)
        boundaries = [int(n) for n in boundary_texts]
    except OSError as error:
        raise LoadFailedError("perf_analyzer wrote no export") from error
    except (ValueError, OverflowError) as error:  # empty, or not a time stamp
        raise LoadFailedError(f"perf_analyzer's export cannot be read: {error}") from error
    if sent.size == 0 or sent.size != answered.size or not boundaries:
        raise LoadFailedError(
            f"perf_analyzer's export cannot be read: {count_text(sent.size, 'request')}, "
            f"{count_text(answered.size, 'answer')}, ends of windows: {len(boundaries)}"
        )
    order = np.argsort(sent, kind="stable")
    return AnsweredRequests(sent[order], answered[order], max(boundaries))


def read_report(path: Path) -> dict[str, float]:
    """perf_analyzer's own figures, over its three windows together.

    Raises:
        LoadFailedError: The report is missing or empty, or lacks a column (another version).
    """
    try:
        with path.open(newline="") as file:
            row = next(csv.DictReader(file))
        if lacking := [column for column in _COLUMNS.values() if row.get(column) is None]:
            raise ValueError(f"it has no {', '.join(lacking)}")
        report = {name: float(row[column]) for name, column in _COLUMNS.items()}
        if not all(map(math.isfinite, report.values())):
            raise ValueError("a figure is not a finite number")
        return report
    except (OSError, StopIteration) as error:
        raise LoadFailedError("perf_analyzer wrote no report") from error
    except (ValueError, csv.Error) as error:
        raise LoadFailedError(f"perf_analyzer's report cannot be read: {error}") from error


def tells_of_error(text: str) -> bool:
    """Whether perf_analyzer's output has an error."""
    return _ERROR.search(text) is not None


def useful_words(text: str) -> str:
    """perf_analyzer's reason, from its output: its error lines, each once, without thread names."""
    reasons = _reasons(text)
    if reasons:
        return " ".join(reasons)
    last = [line.strip() for line in text.splitlines() if line.strip()][-1:]
    if not last:
        return "it said nothing"
    return "it gave no reason" if _PREAMBLE.match(last[0]) else last[0]


def answered_errors(text: str) -> list[str]:
    """Errors that answered requests: of each thread the first one, which ends the thread."""
    lines = (match[0] for match in _ERROR.finditer(text))
    bare = (bare_words(_THREAD.sub("", line)) for line in lines if _THREAD.match(line))
    return [words for words in bare if words and not is_lost(words)]


def bare_words(error: str) -> str:
    """A model's own words in an error of the server: the first line, without the text around it."""
    return _AROUND.sub("", error).strip().partition("\n")[0]


def _reasons(text: str) -> list[str]:
    lines = [_PREFIX.sub("", match[0]).strip() for match in _ERROR.finditer(text)]
    return list(dict.fromkeys(_THREAD.sub("", line) for line in lines))
