"""The loops that keep virtual CPUs awake: at idle priority, one a CPU, gone afterwards."""

from __future__ import annotations

import os
import time

import psutil
from awake import awake


def idle_loops() -> list[psutil.Process]:
    own = psutil.Process().children(recursive=True)
    return [p for p in own if os.sched_getscheduler(p.pid) == os.SCHED_IDLE]


def test_every_cpu_has_a_loop_that_gives_way_to_everything_and_ends_with_the_block() -> None:
    with awake():
        cpus = os.sched_getaffinity(0)
        until = time.monotonic() + 30.0
        while len(idle_loops()) < len(cpus) and time.monotonic() < until:
            time.sleep(0.05)
        loops = idle_loops()
        assert {frozenset(p.cpu_affinity()) for p in loops} == {frozenset({c}) for c in cpus}
    assert not idle_loops()
