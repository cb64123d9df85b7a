"""What goes on beside the load, seen for real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from builders.load_bench import Bench

from tuner.load.setup import Site, StreamRequests
from tuner.load.streams_load import streams_load
from tuner.load.watch.machine import disturbances
from tuner.measurement.host_use import HostUse
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.reason import ReasonKind
from tuner.server.server import Place
from tuner.spec.workload import Workload

pytestmark = [pytest.mark.integration, pytest.mark.measuring]

WINDOW = Window(duration_s=2.0, warmup_s=0.3, deadline_s=30.0)
#: Its own child burns a core for ten seconds; when it ends, that is a child of nobody here.
ORPHAN_HOG = """
import subprocess, sys
hog = "import time\\nend = time.monotonic() + 10\\nwhile time.monotonic() < end: pass"
quiet = subprocess.DEVNULL
print(subprocess.Popen([sys.executable, "-c", hog], stdout=quiet, stderr=quiet).pid)
"""


@contextmanager
def cpu_hog() -> Iterator[None]:
    """A process that burns a core for ten seconds at the most and is no child of ours."""
    started = subprocess.run(
        [sys.executable, "-c", ORPHAN_HOG], capture_output=True, text=True, check=True
    )
    try:
        yield
    finally:
        os.kill(int(started.stdout), signal.SIGKILL)


def measured(bench: Bench, place: Place) -> Measurement:
    site = Site(bench.control, bench.server.endpoints, bench.program, bench.directory, place=place)
    generator = streams_load(Workload(), {"plain": StreamRequests("plain")}, ["plain"], site)
    return generator.measure(LoadPoint(Arrivals.POISSON, 50.0), WINDOW, 1)


def others(host: HostUse) -> float:
    assert host.other_cpu_percent is not None
    return host.other_cpu_percent


def test_a_cpu_hog_beside_the_load_is_flagged(bench: Bench) -> None:
    with cpu_hog():
        measurement = measured(bench, Place.HERE)
    one_core = 100.0 / (os.cpu_count() or 1)
    assert others(measurement.host) > 0.6 * one_core
    assert ReasonKind.OTHER_PROCESSES in [d.kind for d in disturbances(measurement)]


def test_a_quiet_machine_is_not(bench: Bench) -> None:
    if psutil.cpu_percent(1.0) > 5.0:
        pytest.skip("others are at work on this machine")
    measurement = measured(bench, Place.HERE)
    assert measurement.host.cpu_percent is not None
    assert others(measurement.host) < 5.0
    assert ReasonKind.OTHER_PROCESSES not in [d.kind for d in disturbances(measurement)]


def test_processes_of_a_server_that_is_not_ours_are_unknown(bench: Bench) -> None:
    measurement = measured(bench, Place.ELSEWHERE)
    assert measurement.host.other_cpu_percent is None
    assert measurement.host.load_1m is not None
