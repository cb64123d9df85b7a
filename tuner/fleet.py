"""Benches that work side by side: one in this process, or many on the nodes of a Ray cluster.

A bench is a context that an `Opener` opens; it does one piece of work after the other. The benches
of Ray are in `tuner.fleet_on_ray`.
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
    """A bench died with its process or its node, and again when the work was tried once more."""


@dataclass(frozen=True)
class Need:
    """What a bench needs for itself.

    Attributes:
        cpus: How many CPUs, for server and load generator.
        named: Those CPUs and no others, by number; empty: any.
        moves: Where its node is lost it waits for room on another one; else it is lost at once.
    """

    gpus: int = 0
    cpus: int = 1
    named: tuple[int, ...] = ()
    moves: bool = True


@dataclass(frozen=True)
class BenchPlace:
    """The place where a bench works.

    Attributes:
        gpus: Its GPUs by number; None: those that the spec says.
        cpus: Its CPUs by number; empty: all that this process may use.
        niceness: Of its processes, as nice(1) counts.
        oom_score_adj: How soon the kernel kills it where memory is short, see proc(5).
        node: The node of a cluster, by its id.
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
    """What an open bench may say to the run, at once, and hear from it."""

    tell: Callable[[object], None]
    stop: Stop


Bench = Callable[[Any], Any]
Opener = Callable[[BenchPlace, Post, Any], AbstractContextManager[Bench]]


@dataclass(frozen=True)
class Done:
    """How a piece of work ended: with a value, or with an error."""

    bench: str
    value: Any = None
    error: TunerError | None = None


class Fleet(Protocol):
    """Benches by name. Each `submit` has one `Done`, whatever happens to the bench."""

    @property
    def most(self) -> int | None:
        """Benches that can be open at once; None: any number, since they wait for resources."""
        ...

    def need(self, gpus: int | None, cpus: Sequence[int] = (), beside: int | None = None) -> Need:
        """What a bench needs that has so many GPUs, and ``cpus`` where they are named.

        ``gpus``: None is one where there is any. ``beside``: how many such benches are to have
        room, which share the CPUs of a machine without GPUs.

        Raises:
            EnvironmentNotReadyError: No machine has as much.
        """
        ...

    def room(self, need: Need) -> int:
        """How many such benches have room beside each other, if nobody else uses it."""
        ...

    def open(self, bench: str, opener: Opener, argument: object, need: Need) -> None: ...

    def benches(self) -> Sequence[str]:
        """Those that are open, in the order in which they were opened."""
        ...

    def submit(self, bench: str, work: object) -> None: ...

    def next_done(self) -> Done:
        """Waits for the next piece of work to end; passes on what benches say meanwhile."""
        ...

    def close(self, bench: str) -> None: ...


Heard = Callable[[str, object], None]


def as_tuner_error(error: Exception) -> TunerError:
    """What a run can be told of an error in a bench, wherever that is."""
    if isinstance(error, TunerError):
        return error
    return TunerError(f"a defect of a bench: {error!r}\n{traceback.format_exc()}")


class LocalFleet:
    """One bench at a time, in this process. ``heard`` receives a bench's name and what it says."""

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
        del need  # all that there is
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

        def tell(what: object) -> None:
            self._heard(bench, what)

        stack = ExitStack()
        return stack, stack.enter_context(opener(place, Post(tell, self._stop), argument))

    def close(self, bench: str) -> None:
        del self._openers[bench]
        if bench in self._open:
            self._open.pop(bench)[0].close()


@contextmanager
def local_fleet(heard: Heard, stop: Stop) -> Iterator[LocalFleet]:
    """All benches are closed afterwards."""
    fleet = LocalFleet(heard, stop)
    try:
        yield fleet
    finally:
        for bench in fleet.benches():
            fleet.close(bench)
