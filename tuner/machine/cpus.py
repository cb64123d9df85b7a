"""The CPUs that the server and its load generator use.

If the load generator needs little CPU, the server runs on all CPUs, as in production, and the load
generator has real-time priority on the same CPUs. A lower nice value is not enough: on busy CPUs,
Linux 6.18 often wakes a process of nice -15 only after milliseconds.

If the load generator needs much CPU, or real-time priority is not permitted, each gets separate
CPUs, unless the number of the server's threads depends on its CPUs. Then only the soak runs the
server on all CPUs, and the load generator gets a lower nice value: with real-time priority it would
preempt the server at each response (on two cores, with perf_analyzer at 0.4 of a core: 1,400 to
1,550/s within the SLO instead of 1,775 to 1,810/s).

An affinity mask is set before a server starts and never narrowed: PyTorch, LightGBM and others keep
the number of threads that they chose at the start.
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

#: With separate CPUs, the load generator gets one of this many cores, and at least one core.
_CORES_PER_LOAD_CORE = 4
#: Below this share of a core, the load generator needs little CPU.
LITTLE = 0.15
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_PROC = Path("/proc")


class Sharing(Enum):
    """How server and load generator share the CPUs, unless the spec assigns CPUs."""

    TOGETHER = "together"
    APART = "apart"


@dataclass(frozen=True)
class Cores(Facts):
    """The numbers of the CPUs that each may use; empty: all that tune may use.

    Attributes:
        server: CPUs of the server.
        load: CPUs of the load generator.
        of: Number of CPUs that the server would have without its load generator; 0: the spec
            assigns CPUs, or both share all.
    """

    server: tuple[int, ...] = ()
    load: tuple[int, ...] = ()
    of: int = 0

    @property
    def apart(self) -> bool:
        """Whether both have CPUs of which none is shared."""
        return bool(self.server and self.load) and not {*self.server} & {*self.load}

    @property
    def fewer(self) -> bool:
        """Whether the server has fewer CPUs than in production."""
        return 0 < len(self.server) < self.of

    @property
    def shortage(self) -> Reason:
        """Why figures may differ from production; only where `fewer` is true."""
        counts = {"server_cpus": len(self.server), "machine_cpus": self.of}
        return Reason(ReasonKind.FEWER_CPUS, facts=counts)

    @property
    def in_production(self) -> tuple[int, ...]:
        """The server's CPUs in production; empty: all."""
        return () if self.of else self.server

    @property
    def load_priority(self) -> Priority:
        """Scheduling priority of the load generator."""
        return Priority.NICE if self.apart else Priority.REAL_TIME

    @property
    def sharing(self) -> Sharing:
        """The sharing that these CPUs result from."""
        return Sharing.APART if self.apart else Sharing.TOGETHER

    def __str__(self) -> str:
        """A clause for the middle of a sentence."""
        if not (self.server or self.load):
            return "server and load generator share all CPUs"
        server, load = (named(cpus) for cpus in (self.server, self.load))
        return f"the server has {server} and the load generator {load}"


#: Server and load generator may use any CPU.
ANY = Cores()


def decide_sharing(
    load_cores: float | None, *, may_be_first: bool, needs_all_cpus: bool
) -> Sharing | None:
    """Decides the sharing for a run; None while the decision needs ``load_cores``.

    Args:
        load_cores: Share of a core that the load generator uses while the server is saturated;
            None: not measured yet.
        may_be_first: Real-time priority is permitted.
        needs_all_cpus: With fewer CPUs, the server would have fewer threads, or its threads would
            leave the mask.
    """
    if needs_all_cpus:
        return Sharing.TOGETHER
    if not may_be_first:
        return Sharing.APART
    if load_cores is None:
        return None
    return Sharing.TOGETHER if load_cores < LITTLE else Sharing.APART


def share_cores(server: Cpus, load: Cpus, sharing: Sharing | None = None) -> Cores:
    """The CPUs of server and load generator: the spec's, or by ``sharing`` if the spec has none.

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
    """How many of ``cpus`` can be busy, given the CPU quota; empty: of all usable CPUs."""
    count, quota = len(cpus or os.sched_getaffinity(0)), read_quota()
    return count if quota is None else min(count, quota.full_cpus)


def may_be_first() -> bool:
    """Whether this process may get real-time priority."""
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        return False
    os.sched_setscheduler(0, policy, priority)
    return True


def put_back(pid: int, cpus: Collection[int]) -> int:
    """Moves threads of a process and its descendants that left their CPUs back; returns how many.

    Args:
        cpus: Numbers of the CPUs that the process was started on.
    """
    count = 0
    for thread in _threads(pid):
        with suppress(OSError):  # the thread has ended, or belongs to the kernel
            if not os.sched_getaffinity(thread) <= {*cpus}:
                os.sched_setaffinity(thread, cpus)
                count += 1
    return count


def left_its_cpus(count: int, cpus: Collection[int]) -> str:
    """A note about ``count`` threads that were moved back to ``cpus``."""
    threads = count_text(count, "thread")
    return (
        f"{threads} of the server had left {named(cpus)} and {'was' if count == 1 else 'were'} "
        "moved back: a runtime that pins its threads (ONNX Runtime without intra_op_thread_count) "
        "still has one for each CPU of the machine"
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
    """Groups CPUs by physical core; a single core is split into its CPUs."""
    paths = {cpu: Path(_SIBLINGS.format(cpu)) for cpu in cpus}
    core = {cpu: p.read_text() if p.exists() else str(cpu) for cpu, p in paths.items()}
    together: dict[str, list[int]] = {}
    for cpu in cpus:
        together.setdefault(core[cpu], []).append(cpu)
    return [*together.values()] if len(together) > 1 else [[cpu] for cpu in cpus]


def by_core(cpus: Sequence[int]) -> list[int]:
    """``cpus`` ordered by physical core, so that slices contain complete cores where possible."""
    return [cpu for core in _physical_cores(cpus) for cpu in core]


def named(cpus: Collection[int]) -> str:
    """`CPU 3`, `CPUs 0-5,8` or `any CPU`."""
    spans = [
        [cpu for _, cpu in span]
        for _, span in groupby(enumerate(sorted(cpus)), lambda pair: pair[1] - pair[0])
    ]
    text = ",".join(str(s[0]) if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in spans)
    return f"CPU{'s' if len(cpus) > 1 else ''} {text}" if cpus else "any CPU"
