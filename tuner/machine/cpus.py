"""Which CPUs the server and its load generator use, and what the machine lets them use.

A server is started as its users start it, on all CPUs, wherever the load generator needs little:
then that has priority in real time on the same CPUs. A lower nice value is not enough: where all
CPUs are busy, Linux 6.18 often lets a process of nice -15 sleep on for milliseconds. Where the load
generator needs much, or may not have that priority, each has separate CPUs, unless the number of
the server's threads depends on its CPUs, and only the soak has a server on all: the load generator
then has a lower nice value, since in real time it would stop the server at each answer (two cores,
perf_analyzer takes 0.4 of one: 1,400 to 1,550/s within the SLO instead of 1,775 to 1,810/s). A mask
is set before a server is started and never made narrower: PyTorch, LightGBM and others keep the
number of threads that they found at the start.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError
from tuner.facts import Facts
from tuner.machine.process import Priority
from tuner.machine.quota import read_quota
from tuner.reason import Reason, ReasonKind
from tuner.spec.fields import Cpus
from tuner.spec.units import count_text

#: With separate CPUs, the load generator has one core in so many, and at least one.
_CORES_PER_LOAD_CORE = 4
#: What the load generator takes of one core is little below this.
LITTLE = 0.15
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_PROC = Path("/proc")


class Sharing(Enum):
    """How server and load generator use the CPUs, where the spec does not say."""

    TOGETHER = "together"
    APART = "apart"


@dataclass(frozen=True)
class Cores(Facts):
    """The CPUs, by number, that each may use; empty: any that tune may use itself.

    Attributes:
        of: CPUs that the server would have without its load generator; 0: as the spec says.
    """

    server: tuple[int, ...] = ()
    load: tuple[int, ...] = ()
    of: int = 0

    @property
    def apart(self) -> bool:
        """Neither can take the other's CPU."""
        return bool(self.server and self.load) and not {*self.server} & {*self.load}

    @property
    def fewer(self) -> bool:
        """The server has fewer CPUs than it would have in production."""
        return 0 < len(self.server) < self.of

    @property
    def shortage(self) -> Reason:
        """Why its figures may differ from those in production; where `fewer`."""
        counts = {"server_cpus": len(self.server), "machine_cpus": self.of}
        return Reason(ReasonKind.FEWER_CPUS, facts=counts)

    @property
    def in_production(self) -> tuple[int, ...]:
        """The server's CPUs when it is started as its users start it."""
        return () if self.of else self.server

    @property
    def load_priority(self) -> Priority:
        """How the kernel prefers the load generator on this machine."""
        return Priority.NICE if self.apart else Priority.REAL_TIME

    @property
    def sharing(self) -> Sharing:
        """The decision that these follow from."""
        return Sharing.APART if self.apart else Sharing.TOGETHER

    def __str__(self) -> str:
        """A sentence's middle."""
        if not (self.server or self.load):
            return "server and load generator share all CPUs"
        server, load = (named(cpus) for cpus in (self.server, self.load))
        return f"the server has {server} and the load generator {load}"


#: Server and load generator may use any CPU.
ANY = Cores()


def decide_sharing(
    load_cores: float | None, *, may_be_first: bool, needs_all_cpus: bool
) -> Sharing | None:
    """Decides it for a run; None while that depends on ``load_cores``.

    Args:
        load_cores: What the load generator takes of one core when the server is saturated.
        may_be_first: The load generator may have priority in real time.
        needs_all_cpus: With fewer CPUs the server's threads would leave them, or be fewer.
    """
    if needs_all_cpus:
        return Sharing.TOGETHER
    if not may_be_first:
        return Sharing.APART
    if load_cores is None:
        return None
    return Sharing.TOGETHER if load_cores < LITTLE else Sharing.APART


def share_cores(server: Cpus, load: Cpus, sharing: Sharing | None = None) -> Cores:
    """The CPUs by a spec, and by ``sharing`` where the spec leaves them open.

    Raises:
        EnvironmentNotReadyError: The spec names CPUs that this process may not use.
    """
    usable = sorted(os.sched_getaffinity(0))
    for place, cpus in (("server.cpus", server), ("workload.cpus", load)):
        if isinstance(cpus, tuple) and not {*cpus} <= {*usable}:
            raise EnvironmentNotReadyError(
                f"{place} names {named([c for c in cpus if c not in usable])}",
                f"name some of {named(usable)}, which tune may use here",
            )
    apart = sharing is Sharing.APART
    if isinstance(server, tuple):
        return Cores(server, _without(usable, server) if load is None else _numbers(load))
    if isinstance(load, tuple):
        left = _without(usable, load) if server is None and apart else ()
        return Cores(left, load, len(usable) * bool(left))
    if server is None and load is None and apart and (count := core_count()) > 1:
        return _split(usable[:count])
    return ANY


def _split(usable: Sequence[int]) -> Cores:
    cores = _physical_cores(usable)
    count = max(len(cores) // _CORES_PER_LOAD_CORE, 1)
    last = tuple(sorted(cpu for core in cores[-count:] for cpu in core))
    return Cores(_without(usable, last), last, len(usable))


def _numbers(cpus: Cpus) -> tuple[int, ...]:
    return cpus if isinstance(cpus, tuple) else ()


def core_count(cpus: Collection[int] = ()) -> int:
    """How many of these CPUs can be kept busy, of all that this process may use if empty."""
    count, quota = len(cpus or os.sched_getaffinity(0)), read_quota()
    return count if quota is None else min(count, quota.full_cpus)


def may_be_first() -> bool:
    """Whether processes may have priority in real time here."""
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        return False
    os.sched_setscheduler(0, policy, priority)
    return True


def put_back(pid: int, cpus: Collection[int]) -> int:
    """Gives ``cpus`` to each thread of a process and its descendants that may use others.

    Returns how many these were. ``cpus`` are those that the process was started on: threads that
    never left notice nothing.
    """
    count = 0
    for thread in _threads(pid):
        with suppress(OSError):  # it has ended, or is the kernel's
            if not os.sched_getaffinity(thread) <= {*cpus}:
                os.sched_setaffinity(thread, cpus)
                count += 1
    return count


def left_its_cpus(count: int, cpus: Collection[int]) -> str:
    """A sentence about threads that were put back."""
    threads = count_text(count, "thread")
    return (
        f"{threads} of the server had left {named(cpus)} and {'is' if count == 1 else 'are'} there "
        "again: a runtime that pins its threads (ONNX Runtime without intra_op_thread_count) still "
        "has one for each CPU of the machine"
    )


def _threads(pid: int) -> Iterator[int]:
    import psutil

    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            with suppress(OSError):
                yield from (int(task.name) for task in (_PROC / str(member.pid) / "task").iterdir())


def _without(cpus: Sequence[int], taken: Collection[int]) -> tuple[int, ...]:
    return tuple(cpu for cpu in cpus if cpu not in taken)


def _physical_cores(cpus: Sequence[int]) -> list[list[int]]:
    """CPUs that are threads of one core go together; where there is but one, each by itself."""
    paths = {cpu: Path(_SIBLINGS.format(cpu)) for cpu in cpus}
    core = {cpu: p.read_text() if p.exists() else str(cpu) for cpu, p in paths.items()}
    together: dict[str, list[int]] = {}
    for cpu in cpus:
        together.setdefault(core[cpu], []).append(cpu)
    return [*together.values()] if len(together) > 1 else [[cpu] for cpu in cpus]


def by_core(cpus: Sequence[int]) -> list[int]:
    """CPUs in an order in which slices contain complete cores, as far as possible."""
    return [cpu for core in _physical_cores(cpus) for cpu in core]


def named(cpus: Collection[int]) -> str:
    """CPU 3, CPUs 0-5,8 or any CPU."""
    spans = [
        [cpu for _, cpu in span]
        for _, span in groupby(enumerate(sorted(cpus)), lambda pair: pair[1] - pair[0])
    ]
    text = ",".join(str(s[0]) if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in spans)
    return f"CPU{'s' if len(cpus) > 1 else ''} {text}" if cpus else "any CPU"
