"""CPUs of this machine for the server, and others for the load generator.

Where the two share all of them, a server with many threads leaves its client too little CPU to send
requests when they are due, and what is measured is both together.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError
from tuner.spec.fields import Cpus

#: The load generator gets one core in so many, and at least one.
_CORES_PER_LOAD_CORE = 4
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


@dataclass(frozen=True)
class Cores:
    """The CPUs, by number, that each may use; empty: any that tune may use itself."""

    server: tuple[int, ...] = ()
    load: tuple[int, ...] = ()

    @property
    def apart(self) -> bool:
        """Neither can take the other's CPU."""
        return bool(self.server and self.load) and not {*self.server} & {*self.load}

    def __str__(self) -> str:
        """A sentence's middle; empty where both may use any."""
        if not (self.server or self.load):
            return ""
        server, load = (_named(cpus) for cpus in (self.server, self.load))
        return f"the server has {server} and the load generator {load}"


#: Server and load generator may use any CPU.
NOT_SPLIT = Cores()


def share_cores(server: Cpus, load: Cpus) -> Cores:
    """The split that a spec asks for; where it leaves one open, that gets what the other has not.

    Raises:
        EnvironmentNotReadyError: It names CPUs that this process may not use.
    """
    usable = sorted(os.sched_getaffinity(0))
    for place, cpus in (("server.cpus", server), ("workload.cpus", load)):
        if isinstance(cpus, tuple) and not {*cpus} <= {*usable}:
            raise EnvironmentNotReadyError(
                f"{place} names {_named([c for c in cpus if c not in usable])}",
                f"name some of {_named(usable)}, which tune may use here",
            )
    if isinstance(server, tuple) and load is None:
        return Cores(server, _without(usable, server))
    if isinstance(load, tuple) and server is None:
        return Cores(_without(usable, load), load)
    if server is None and load is None and len(usable) > 1:
        cores = _whole_cores(usable)
        count = max(len(cores) // _CORES_PER_LOAD_CORE, 1)
        last = tuple(sorted(cpu for core in cores[-count:] for cpu in core))
        return Cores(_without(usable, last), last)
    return Cores(*(cpus if isinstance(cpus, tuple) else () for cpus in (server, load)))


def _without(cpus: Sequence[int], taken: Collection[int]) -> tuple[int, ...]:
    return tuple(cpu for cpu in cpus if cpu not in taken)


def _whole_cores(cpus: Sequence[int]) -> list[list[int]]:
    """CPUs that are threads of one core go together; where there is but one, each by itself."""
    paths = {cpu: Path(_SIBLINGS.format(cpu)) for cpu in cpus}
    core = {cpu: p.read_text() if p.exists() else str(cpu) for cpu, p in paths.items()}
    together: dict[str, list[int]] = {}
    for cpu in cpus:
        together.setdefault(core[cpu], []).append(cpu)
    return [*together.values()] if len(together) > 1 else [[cpu] for cpu in cpus]


def _named(cpus: Collection[int]) -> str:
    """CPU 3, CPUs 0-5,8 or any CPU."""
    spans = [
        [cpu for _, cpu in span]
        for _, span in groupby(enumerate(sorted(cpus)), lambda pair: pair[1] - pair[0])
    ]
    text = ",".join(str(s[0]) if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in spans)
    return f"CPU{'s' if len(cpus) > 1 else ''} {text}" if cpus else "any CPU"
