"""A real meter of stalls; stopped processes stand for a machine that stands still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from builders.measurements import latency_slo

from tuner.load.watch.machine import watch_stalls

pytestmark = pytest.mark.integration

BOUND = latency_slo(share=0.99, within_s=0.5)


def meters() -> set[psutil.Process]:
    """The test session has one of its own."""
    ours = psutil.Process().children(recursive=True)
    named = {p for p in ours if "stall_meter" in " ".join(p.cmdline())}
    return {p for p in named if p.parent() not in named}


def processes_of_new(before: set[psutil.Process]) -> list[psutil.Process]:
    """Those of a meter that begins, when all are there."""
    deadline = time.monotonic() + 30.0
    processes: list[psutil.Process] = []
    while len(processes) < 1 + min(len(os.sched_getaffinity(0)), 16):
        assert time.monotonic() < deadline
        time.sleep(0.01)
        processes = [p for meter in meters() - before for p in (meter, *meter.children())]
    return processes


@pytest.mark.measuring
def test_a_machine_that_stands_still_is_seen_and_nothing_is_left_running() -> None:
    before = meters()
    with watch_stalls(BOUND) as stalls:
        each = processes_of_new(before)
        time.sleep(0.2)
        begin_ns = time.time_ns()
        for process in each:
            process.suspend()
        time.sleep(0.3)
        for process in each:
            process.resume()
        time.sleep(0.2)
        end_ns = time.time_ns()
    share = 100.0 * 0.3e9 / (end_ns - begin_ns)
    assert stalls.percent(begin_ns, end_ns) == pytest.approx(share, rel=0.3)
    assert not any(process.is_running() for process in each)


def test_the_meter_does_not_outlive_a_tuner_that_is_killed() -> None:
    code = (
        "import sys, time\n"
        "from tuner.load.watch.machine import watch_stalls\n"
        "from tuner.measurement.window import NO_BOUND\n"
        "with watch_stalls(NO_BOUND):\n    time.sleep(60)"
    )
    before = meters()
    with subprocess.Popen([sys.executable, "-c", code]) as tuner:
        each = processes_of_new(before)
        tuner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 5.0
    while any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in each):
        assert time.monotonic() < deadline
        time.sleep(0.01)
