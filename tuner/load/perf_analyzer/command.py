"""perf_analyzer's command line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from tuner.load.generator import Target
from tuner.measurement.measurement import LoadPoint
from tuner.measurement.window import Window

#: More threads than this gain nothing: all requests are asynchronous, and on a small machine
#: sixteen threads cost a third more CPU than four.
MAX_THREADS = 4

# perf_analyzer always measures three windows of 1.2 times its measurement interval.
_WINDOWS = 3
_WINDOW_FACTOR = 1.2
_LEAD_S = 0.02  # its first window begins a little before the first request
_TLS_FILES = ("root-certifications", "private-key", "certificate-chain")
_ANY = "1000000000"  # percent


@dataclass(frozen=True)
class RunFiles:
    """Files of one run of perf_analyzer."""

    inputs: Path
    intervals: Path
    csv: Path
    export: Path


def interval_ms(total_s: float) -> int:
    """Measurement interval for which perf_analyzer keeps up load for ``total_s``."""
    return math.ceil((total_s + _LEAD_S) * 1000.0 / (_WINDOWS * _WINDOW_FACTOR))


def load_s(interval: int) -> float:
    """How long perf_analyzer keeps up load with a measurement interval in milliseconds."""
    return interval * _WINDOWS * _WINDOW_FACTOR / 1000.0


def command_line(
    binary: Path, target: Target, load: LoadPoint, window: Window, files: RunFiles
) -> list[str]:
    """Arguments of one run: fixed windows, asynchronous requests, our inputs and arrivals.

    Any deviation counts as stable, so that the run always ends after exactly three windows.
    Otherwise perf_analyzer repeats until its numbers agree, and gives no result when they never do
    (three windows of a few Poisson arrivals differ by more than a factor of ten).
    """
    argv = [str(binary), "-m", target.model, "-u", target.address, "-i", target.protocol.value]
    if (tls := target.endpoints.tls_of("grpc")) is not None:
        given = zip(_TLS_FILES, tls.ca_key_and_cert, strict=True)
        argv += ["--ssl-grpc-use-ssl", *(f"--ssl-grpc-{n}-file={f}" for n, f in given if f)]
    argv += ["--async", "--max-threads", str(MAX_THREADS), "-b", str(target.batch_size)]
    if load.arrivals.open_loop:
        argv += ["--request-intervals", str(files.intervals)]
    else:
        argv += ["--concurrency-range", str(round(load.level))]
    argv += ["--input-data", str(files.inputs)]
    argv += ["--measurement-interval", str(interval_ms(window.total_s))]
    argv += ["--stability-percentage", _ANY, "--max-trials", str(_WINDOWS)]
    argv += ["-f", str(files.csv), "--verbose-csv"]
    argv += ["--profile-export-file", str(files.export)]
    return argv
