"""Watches each core for stalls: ``python -I -S stall_meter.py PERIOD_NS LEAST_NS``.

It prints the number of watched cores, and then, for each stall, its start and end in ns on the wall
clock, until its standard input is closed (or the process at the other end dies). It starts a
process per core, since Python's threads would wait for each other. It imports nothing of this
package, so that it starts quickly.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

#: With more cores, only this many are watched, evenly spread.
_MOST_CORES = 16


def main() -> None:
    period_ns, least_ns = map(int, sys.argv[1:])
    cores = sorted(os.sched_getaffinity(0))
    cores = cores[:: -(-len(cores) // _MOST_CORES)]
    meter, watchers = os.getpid(), []
    for core in cores:
        watchers.append(os.fork())
        if watchers[-1] == 0:
            _watch(core, meter, period_ns, least_ns)
            os._exit(0)
    _say(len(cores))
    os.read(0, 1)
    for watcher in watchers:
        os.kill(watcher, signal.SIGKILL)
        os.waitpid(watcher, 0)


def _watch(core: int, meter: int, period_ns: int, least_ns: int) -> None:
    """Sleeps on a core repeatedly, as long as the meter is its parent.

    A late wake-up is the end of a stall that began within the sleep: on average, half of the sleep
    belongs to the stall.
    """
    os.sched_setaffinity(0, {core})
    with suppress(OSError):  # a higher priority than the load generator: not every user may set it
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))
    period_s, asleep_ns = period_ns / 1e9, time.monotonic_ns()
    while os.getppid() == meter:
        time.sleep(period_s)
        awake_ns = time.monotonic_ns()
        late_ns = awake_ns - asleep_ns - period_ns
        if late_ns > least_ns:
            end_ns = time.time_ns()
            _say(end_ns - late_ns - period_ns // 2, end_ns)
        asleep_ns = awake_ns


def _say(*numbers: int) -> None:
    os.write(1, (" ".join(map(str, numbers)) + "\n").encode())


if __name__ == "__main__":
    main()
