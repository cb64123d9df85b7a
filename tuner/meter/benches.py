"""Several benches that measure for one run: their tasks, and the first bench as a `Bench`.

A task is sent to a bench and called there with the bench's session. The run itself has no server:
its own measurements, one after the other, go to the first bench.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from tuner.errors import (
    ClientLimitError,
    EnvironmentNotReadyError,
    InterruptedRunError,
    ServerGoneError,
    TunerError,
)
from tuner.fleet import BenchLostError, BenchPlace, Fleet, Need
from tuner.load.probes.answers import ConfigAnswers
from tuner.load.probes.overload import Overload
from tuner.load.probes.warmup import WarmUp
from tuner.machine.cpus import named
from tuner.measurement.batch_profile import BatchCall
from tuner.measurement.measurement import Measurement, Stage
from tuner.measurement.window import Window
from tuner.meter.evaluate import ClientCeiling
from tuner.meter.protocol import Bench
from tuner.prepare.timebook import Phase, TimeBook
from tuner.reason import Reason
from tuner.record.manifest import Manifest
from tuner.score.point import Point
from tuner.space.candidate import Candidate
from tuner.spec.slo import Slo

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

#: A task: a function of a bench's `tuner.meter.session.Session`.
Work = Callable[[Any], Any]


class BenchRefusedError(EnvironmentNotReadyError):
    """A bench differs from the first one in its machine, programs, configs or files."""


@dataclass(frozen=True)
class Terms:
    """What all benches of a run have in common.

    Attributes:
        run: The run's directory.
        manifest: The run's manifest; None until the first bench has reported its machine.
        files: A hash of each file of the models and of the spec, see `tuner.modelconfig.content`.
        stage: The purpose of the measurements.
    """

    run: Path
    manifest: Manifest | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    stage: Stage = Stage.SEARCH


@dataclass(frozen=True)
class BenchTask:
    """A task as it is sent to a bench; with None as its work, the bench only gets ready."""

    terms: Terms
    work: Work | None


@dataclass(frozen=True)
class WorkPlace:
    """The place of a bench in a trial: host, GPUs and CPUs as in `TrialBench`."""

    host: str
    gpus: str
    cpus: str

    @classmethod
    def of(cls, place: BenchPlace | None) -> WorkPlace:
        if place is None:
            return cls("unknown", "none", "")
        gpus = ",".join(map(str, place.gpus)) if place.gpus else "none"
        return cls(place.host, gpus, named(place.cpus).rpartition(" ")[2] if place.cpus else "")


@dataclass(frozen=True)
class WorkDone:
    """How a task ended, and on which bench; its work is None where a bench got ready."""

    work: Work | None
    place: WorkPlace
    value: Any = None
    error: TunerError | None = None


@dataclass
class _Under:
    """A task in progress, with the number of benches that were lost during it."""

    work: Work | None
    losses: int = 0


class Opens(Protocol):
    """Opens a bench with the name ``bench`` on the fleet."""

    def __call__(self, bench: str, need: Need) -> None: ...


class Benches:
    """The benches of one run on a fleet, by name.

    A lost bench is replaced where the fleet has room; its task goes to another bench, once.

    Args:
        need: What each bench needs of the fleet.
        terms: What the benches have in common; may be replaced by assignment.
        note: Receives a sentence about each bench that is refused or lost.
        stopping: Whether the user wants the run to stop.

    Attributes:
        places: The place of each bench that has reported one, by the bench's name.
    """

    def __init__(
        self,
        fleet: Fleet,
        opens: Opens,
        need: Need,
        terms: Terms,
        note: Callable[[str], None],
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._fleet, self._opens, self._need = fleet, opens, need
        self.terms, self._note = terms, note
        self._is_stopping = stopping
        self.places: dict[str, BenchPlace] = {}
        self._free: list[str] = []
        self._under: dict[str, deque[_Under]] = {}
        self._waiting: deque[_Under] = deque()
        self._ended: deque[WorkDone] = deque()
        self._opened = 0

    @property
    def free(self) -> int:
        """The number of benches that are ready and have no task."""
        return max(len(self._free) - len(self._waiting), 0)

    @property
    def stopping(self) -> bool:
        """Whether the user wants the run to stop."""
        return self._is_stopping()

    @property
    def count(self) -> int:
        """The number of open benches, ready or not."""
        return len(self._under)

    def open(self, count: int = 1, ready: Work | None = None) -> None:
        """Opens ``count`` more benches, which get ready at once, or run the task ``ready``."""
        for _ in range(count):
            self._opened += 1
            name = f"bench-{self._opened}"
            self._opens(name, self._need)
            self._under[name] = deque()
            self._submit(name, _Under(ready))

    def first_answer(self) -> Any:
        """Waits for the first task of the first bench, and returns its value.

        Raises:
            TunerError: As the task raises it.
        """
        done = self.next_done()
        if done.error is not None:
            raise done.error
        return done.value

    def hand_out(self, work: Work) -> None:
        """Gives a task to a free bench, or to the next one that becomes free."""
        self._waiting.append(_Under(work))
        self._give()

    def next_done(self) -> WorkDone:
        """Waits until a task ends or a bench is ready.

        Raises:
            BenchLostError: No bench is left.
            BenchRefusedError: No bench is left, since the last one was refused.
        """
        while not self._ended:
            self._hear()
        return self._ended.popleft()

    def call(self, work: Work) -> Any:
        """The value of a task on the first bench, after the tasks that this bench has already.

        Raises:
            ServerGoneError: The bench was lost, and its server with it.
            TunerError: As the task raises it.
        """
        other = list[WorkDone]()
        self._await_first()
        name = next(iter(self._under))
        under = _Under(work, losses=1)
        if name in self._free:
            self._free.remove(name)
        self._submit(name, under)
        while True:
            done = self.next_done()
            if done.work is not work:
                other.append(done)
                continue
            self._ended.extendleft(reversed(other))
            if isinstance(done.error, BenchLostError):
                raise ServerGoneError(done.error.message) from done.error
            if done.error is not None:
                raise done.error
            return done.value

    def _await_first(self) -> None:
        """Waits until a bench is ready, where all of them are new."""
        while not self._free and not any(u.work for q in self._under.values() for u in q):
            self._hear()

    def _submit(self, name: str, under: _Under) -> None:
        self._under[name].append(under)
        self._fleet.submit(name, BenchTask(self.terms, under.work))

    def _give(self) -> None:
        while self._waiting and self._free:
            self._submit(self._free.pop(0), self._waiting.popleft())

    def _hear(self) -> None:
        if not self._under:
            raise BenchLostError("no bench is left to measure on", "the run can be resumed")
        done = self._fleet.next_done()
        under, place = self._under[done.bench].popleft(), WorkPlace.of(self.places.get(done.bench))
        error = done.error
        stopped = isinstance(error, InterruptedRunError)
        if isinstance(error, BenchLostError | BenchRefusedError):
            self._drop(done.bench, under, error)
        elif under.work is None and error is not None and not stopped:
            if len(self._under) == 1:
                raise error
            self._drop(done.bench, under, BenchRefusedError(f"{place.host}: {error.message}"))
        else:
            if not self._under[done.bench]:
                self._free.append(done.bench)
            self._ended.append(WorkDone(under.work, place, done.value, error))
        self._give()

    def _drop(self, name: str, under: _Under, error: TunerError) -> None:
        """Removes a bench: its tasks go to other benches, or fail the second time."""
        lost = [under, *self._under.pop(name)]
        self._free = [free for free in self._free if free != name]
        self._fleet.close(name)
        place = WorkPlace.of(self.places.pop(name, None))
        refused = isinstance(error, BenchRefusedError)
        if not self._under and refused:
            raise error
        self._note(error.message)
        for one in lost:
            if one.work is None:
                continue
            if one.losses and not refused:
                self._ended.append(WorkDone(one.work, place, error=error))
            else:
                self._waiting.append(replace(one, losses=one.losses + 1))
        if not refused and self._fleet.room(self._need) > len(self._under):
            self.open()


@dataclass(frozen=True)
class _Call:
    """A task: a call of a method of the bench."""

    name: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, session: Any) -> Any:
        value = getattr(session.bench, self.name)(*self.arguments, **self.named)
        return value.kind if self.name == "deploy" else value


class FirstBench:
    """The first of several benches as the run's `Bench`, see `tuner.meter.protocol`.

    Where the bench is lost, its server is lost, too: the call raises `ServerGoneError`, as for any
    server that died.
    """

    def __init__(self, benches: Benches, book: TimeBook, measured: Callable[[Point], None]) -> None:
        self._benches, self._book, self._measured = benches, book, measured
        self.sendable = ClientCeiling()
        self.batch_calls: tuple[BatchCall, ...] = ()  # those of a trial are in the `Trial`

    def enter(self, stage: Stage) -> None:
        self._benches.terms = replace(self._benches.terms, stage=stage)

    def deploy(
        self, candidate: Candidate, *, fresh: bool = False, in_production: bool = False
    ) -> Any:
        with self._book.phase(Phase.DEPLOYING):
            named = {"fresh": fresh, "in_production": in_production}
            return SimpleNamespace(kind=self._benches.call(_Call("deploy", (candidate,), named)))

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        return self._judged(level, lambda: self._call(Bench.measure, level, seed, least_s))

    def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        return self._judged(level, lambda: self._call(Bench.soak, level, seed, least_s))

    def once(self, level: float, seed: int, window: Window) -> Point:
        return self._call(Bench.once, level, seed, window)

    def one_at_a_time(self, seed: int) -> Mapping[str, float]:
        return self._call(Bench.one_at_a_time, seed)

    def many_at_once(self, concurrency: int, seed: int) -> float:
        return self._call(Bench.many_at_once, concurrency, seed)

    def saturate(self, concurrency: int, seed: int, least_s: float = 0.0) -> Measurement:
        return self._call(Bench.saturate, concurrency, seed, least_s)

    def overload(self, capacity: float, slo: Slo, seed: int) -> Overload:
        return self._call(Bench.overload, capacity, slo, seed)

    def answers(self) -> Mapping[str, ConfigAnswers]:
        return self._call(Bench.answers)

    def warm_up(self, candidate: Candidate, texts: Mapping[str, str]) -> WarmUp | None:
        return self._call(Bench.warm_up, candidate, texts)

    def lost(self, reason: Reason) -> None:
        self._call(Bench.lost, reason)

    def _judged(self, level: float, measure: Callable[[], Point]) -> Point:
        """The point of a measurement or a soak, which also shows what can be sent."""
        try:
            point = measure()
        except ClientLimitError as error:
            self.sendable.fell_behind(error, level)
            raise
        self.sendable.kept_up(level)
        self._measured(point)
        return point

    def _call(
        self,
        method: Callable[Concatenate[Bench, _Parameters], _Result],
        *arguments: _Parameters.args,
        **named: _Parameters.kwargs,
    ) -> _Result:
        with self._book.phase(Phase.MEASURING):
            result: _Result = self._benches.call(_Call(method.__name__, arguments, named))
        return result
