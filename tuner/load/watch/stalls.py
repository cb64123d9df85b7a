"""Stalls of this machine: a thread on each core sleeps, and they show in how late it wakes.

As jHiccup does. Whatever stops a core stops the thread too: a hypervisor, whether or not it reports
steal time, the CPU quota of a control group, a process of higher priority. What it cannot tell:

- what other processes take. One of the same priority takes half of a busy core, in slices of 3 to
  4 ms, and who has slept is woken before it: `HostUse.other_cpu_percent` tells of that.
- stalls below `LEAST_S`: those are slices of the server's own threads, too.
- who used up a quota: it may have been the server itself.
- anything of a server that is elsewhere.

It costs 10 to 25 us for each time it wakes: 0.2 to 0.5 % of a core that the server keeps busy, and
up to 1 % of one whose caches others fill.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tuner.load.watch import stall_meter
from tuner.measurement.window import LatencyBound

#: Stalls longer than this part of the SLO are seen, but none shorter than a scheduler's slice.
PART_OF_SLO, LEAST_S = 0.1, 0.005
#: The thread sleeps for as long as the shortest stall, at most so long.
_LONGEST_SLEEP_S = 0.02
#: Stalls may cover this part of what the SLO lets be late; with more, the machine was disturbed.
PART_OF_ALLOWANCE = 0.25


@dataclass
class Stalls:
    """What was seen of the cores that were watched; complete when its context has ended."""

    cores: int = 0
    spans_ns: Sequence[tuple[int, int]] = field(default_factory=list)

    def percent(self, start_ns: int, end_ns: int) -> float | None:
        """Percent of the time of all cores; None if none could be watched."""
        if not self.cores or end_ns <= start_ns:
            return None
        inside = sum(max(min(b, end_ns) - max(a, start_ns), 0) for a, b in self.spans_ns)
        return 100.0 * min(inside / (self.cores * (end_ns - start_ns)), 1.0)


#: For who does not look at them.
NOT_WATCHED = Stalls()


def shortest_s(bound: LatencyBound) -> float:
    """The shortest stall that counts."""
    return max(PART_OF_SLO * bound.within_s, LEAST_S)


def quiet_percent(bound: LatencyBound) -> float:
    """The share of the time that stalls may cover on a quiet machine."""
    return 100.0 * PART_OF_ALLOWANCE * (1.0 - bound.share)


@contextmanager
def watch_stalls(bound: LatencyBound) -> Iterator[Stalls]:
    """Watches for as long as the context is open; ``bound``: the tightest latency SLO."""
    least_s = shortest_s(bound)
    times_ns = [str(round(1e9 * s)) for s in (min(least_s, _LONGEST_SLEEP_S), least_s)]
    stalls = Stalls()
    with tempfile.TemporaryFile() as seen:
        with subprocess.Popen(
            [sys.executable, "-I", "-S", stall_meter.__file__, *times_ns],
            stdin=subprocess.PIPE,
            stdout=seen,
            stderr=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is not for it
        ):
            yield stalls
        seen.seek(0)
        lines = [[int(word) for word in line.split()] for line in seen.read().splitlines()]
    stalls.cores = next((line[0] for line in lines if len(line) == 1), 0)
    stalls.spans_ns = sorted((line[0], line[1]) for line in lines if len(line) == 2)
