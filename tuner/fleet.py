"""Benches that measure in parallel: one in this process, or many on the nodes of a Ray cluster.

A bench is a context that an `Opener` opens. It does its pieces of work one after the other. The
fleet on Ray is in `tuner.fleet_on_ray`.
"""

from __future__ import annotations

import platform
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from tuner.errors import EnvironmentNotReadyError, TunerError
from tuner.machine.cpus import named
from tuner.machine.stop import Stop


class BenchLostError(EnvironmentNotReadyError):
    """A bench died with its process or its node, and died again on the retry of the work."""


@dataclass(frozen=True)
class Need:
    """The resources that a bench needs.

    Attributes:
        gpus: Number of GPUs.
        cpus: Number of CPUs, for server and load generator together.
        named: Numbers of the CPUs that it must get; empty: any.
        moves: If its node is lost, the bench waits for room on another node; else it is lost, too.
    """

    gpus: int = 0
    cpus: int = 1
    named: tuple[int, ...] = ()
    moves: bool = True


@dataclass(frozen=True)
class BenchPlace:
    """The place where a bench works.

    Attributes:
        host: Name of the machine.
        gpus: Numbers of its GPUs; None: those of the spec.
        cpus: Numbers of its CPUs; empty: all that this process may use.
        niceness: The nice value of its processes, see nice(1).
        oom_score_adj: How likely the kernel kills it when memory is short, see proc(5).
        node: Id of the node in the cluster.
    """

    host: str
    gpus: tuple[int, ...] | None = None
    cpus: tuple[int, ...] = ()
    niceness: int = 0
    oom_score_adj: int = 0
    node: str = ""

    def __str__(self) -> str:
        gpus = f", GPU {','.join(map(str, self.gpus))}" if self.gpus else ""
        return f"{self.host}{gpus}, {named(self.cpus)}"


@dataclass(frozen=True)
class Post:
    """The connection of an open bench to its run.

    Attributes:
        send: Sends a message to the run at once.
        stop: Whether the run is to stop.
    """

    send: Callable[[object], None]
    stop: Stop


Bench = Callable[[Any], Any]
Opener = Callable[[BenchPlace, Post, Any], AbstractContextManager[Bench]]


@dataclass(frozen=True)
class Done:
    """The end of a piece of work: a value or an error."""

    bench: str
    value: Any = None
    error: TunerError | None = None


class Fleet(Protocol):
    """Benches by name. Each `submit` results in one `Done`, whatever happens to the bench."""

    @property
    def most(self) -> int | None:
        """The most benches open at once; None: no limit, since benches wait for resources."""
        ...

    def need(self, gpus: int | None, cpus: Sequence[int] = (), beside: int | None = None) -> Need:
        """The need of a bench.

        Args:
            gpus: Number of GPUs; None: one if the fleet has GPUs, else none.
            cpus: Numbers of the CPUs that it must get; empty: any.
            beside: Number of such benches that share the CPUs of machines without GPUs.

        Raises:
            EnvironmentNotReadyError: No machine has that many GPUs or CPUs.
        """
        ...

    def room(self, need: Need) -> int:
        """Number of such benches that fit at the same time on the otherwise unused fleet."""
        ...

    def open(self, bench: str, opener: Opener, argument: object, need: Need) -> None: ...

    def benches(self) -> Sequence[str]:
        """Names of the open benches, in the order of opening."""
        ...

    def submit(self, bench: str, work: object) -> None: ...

    def next_done(self) -> Done:
        """Waits until a piece of work has ended; meanwhile passes on messages of benches."""
        ...

    def close(self, bench: str) -> None: ...


Heard = Callable[[str, object], None]


def as_tuner_error(error: Exception) -> TunerError:
    """The error to report; an unexpected one becomes a `TunerError` with its traceback."""
    if isinstance(error, TunerError):
        return error
    return TunerError(f"a defect of a bench: {error!r}\n{traceback.format_exc()}")


class LocalFleet:
    """One bench at a time, in this process; ``heard`` receives its name and its messages."""

    most = 1

    def __init__(self, heard: Heard, stop: Stop) -> None:
        self._heard, self._stop = heard, stop
        self._waiting: deque[tuple[str, object]] = deque()
        self._openers: dict[str, tuple[Opener, object]] = {}
        self._open: dict[str, tuple[ExitStack, Bench]] = {}

    def need(self, gpus: int | None, cpus: Sequence[int] = (), beside: int | None = None) -> Need:
        del beside
        return Need(gpus or 0, len(cpus), tuple(cpus))

    def room(self, need: Need) -> int:
        del need
        return 1

    def open(self, bench: str, opener: Opener, argument: object, need: Need) -> None:
        del need  # the bench gets the entire machine
        self._openers[bench] = opener, argument

    def benches(self) -> Sequence[str]:
        return list(self._openers)

    def submit(self, bench: str, work: object) -> None:
        self._waiting.append((bench, work))

    def next_done(self) -> Done:
        bench, work = self._waiting.popleft()
        try:
            if bench not in self._open:
                self._open[bench] = self._entered(bench)
            return Done(bench, self._open[bench][1](work))
        except Exception as error:
            return Done(bench, error=as_tuner_error(error))

    def _entered(self, bench: str) -> tuple[ExitStack, Bench]:
        opener, argument = self._openers[bench]
        place = BenchPlace(platform.node())
        self._heard(bench, place)

        def send(what: object) -> None:
            self._heard(bench, what)

        stack = ExitStack()
        return stack, stack.enter_context(opener(place, Post(send, self._stop), argument))

    def close(self, bench: str) -> None:
        del self._openers[bench]
        if bench in self._open:
            self._open.pop(bench)[0].close()


@contextmanager
def local_fleet(heard: Heard, stop: Stop) -> Iterator[LocalFleet]:
    """A fleet in this process; on leaving the context, all benches are closed."""
    fleet = LocalFleet(heard, stop)
    try:
        yield fleet
    finally:
        for bench in fleet.benches():
            fleet.close(bench)
