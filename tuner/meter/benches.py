"""Several benches that measure for one run: what is handed to them, and one of them as a `Bench`.

A piece of work travels to a bench and is called there with its session. The run keeps no server of
its own: what it measures one after the other goes to the first bench.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

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
from tuner.prepare.timebook import Phase, TimeBook
from tuner.reason import Reason
from tuner.record.manifest import Manifest
from tuner.score.point import Point
from tuner.space.candidate import Candidate
from tuner.spec.slo import Slo

#: Of a `tuner.meter.session.Session`.
Work = Callable[[Any], Any]


class BenchRefusedError(EnvironmentNotReadyError):
    """A bench is not like the run's: its machine, programs, configs or files differ."""


@dataclass(frozen=True)
class Terms:
    """What every bench of a run has in common.

    Attributes:
        run: The run's directory.
        manifest: What the run is made with; None until the first bench has told.
        files: A hash of each file of the models and of the spec, see `tuner.modelconfig.content`.
        stage: The purpose of what is measured.
    """

    run: Path
    manifest: Manifest | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    stage: Stage = Stage.SEARCH


@dataclass(frozen=True)
class BenchTask:
    """A piece of work as it travels; None: the bench only gets ready."""

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
    """How a piece of work ended, and where; None is its work where a bench got ready."""

    work: Work | None
    place: WorkPlace
    value: Any = None
    error: TunerError | None = None


@dataclass
class _Under:
    """A piece of work under way, and how many benches were lost with it."""

    work: Work | None
    losses: int = 0


class Opens(Protocol):
    """Opens a bench of that name on the fleet."""

    def __call__(self, bench: str, need: Need) -> None: ...


class Benches:
    """The benches of one run on a fleet, by name.

    One that is lost is replaced where there is room; its work goes to another one, once.

    Args:
        terms: As they are now; they may be replaced.
        note: Receives a sentence about each bench that is refused or lost.

    Attributes:
        places: Where each bench is, as it has told.
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
        """Benches that are ready and have nothing to do."""
        return max(len(self._free) - len(self._waiting), 0)

    @property
    def stopping(self) -> bool:
        """The user wants the run to stop."""
        return self._is_stopping()

    @property
    def count(self) -> int:
        """Benches that are open, ready or not."""
        return len(self._under)

    def open(self, count: int = 1, ready: Work | None = None) -> None:
        """Opens so many more, which get ready at once; ``ready``: what they do instead."""
        for _ in range(count):
            self._opened += 1
            name = f"bench-{self._opened}"
            self._opens(name, self._need)
            self._under[name] = deque()
            self._submit(name, _Under(ready))

    def first_answer(self) -> Any:
        """Waits for the first work of the first bench; raises its error."""
        done = self.next_done()
        if done.error is not None:
            raise done.error
        return done.value

    def hand_out(self, work: Work) -> None:
        """Gives it to a bench that is free, or to the next that is."""
        self._waiting.append(_Under(work))
        self._give()

    def next_done(self) -> WorkDone:
        """Waits for the next piece of work to end, or the next bench to be ready.

        Raises:
            BenchLostError: No bench is left.
            BenchRefusedError: Likewise, and the last one was refused.
        """
        while not self._ended:
            self._hear()
        return self._ended.popleft()

    def call(self, work: Work) -> Any:
        """What the first bench makes of it; waits for what that has under way.

        Raises:
            ServerGoneError: The bench was lost, and with it what it served.
            TunerError: As the work raises it.
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
        """Until a bench is ready, where all are new."""
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
        """A bench is gone: what it had goes to another one, or has failed with it."""
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
    """A call of a method of the bench."""

    name: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, session: Any) -> Any:
        value = getattr(session.bench, self.name)(*self.arguments, **self.named)
        return value.kind if self.name == "deploy" else value


class FirstBench:
    """The first of several benches as the one bench of a run, see `tuner.meter.protocol.Bench`.

    What it serves is lost with it: then the next call raises `ServerGoneError`, as for any server
    that died.
    """

    def __init__(self, benches: Benches, book: TimeBook, measured: Callable[[Point], None]) -> None:
        self._benches, self._book, self._measured = benches, book, measured
        self.sendable = ClientCeiling()
        self.batch_calls: tuple[BatchCall, ...] = ()  # those of a trial come with it

    def enter(self, stage: Stage) -> None:
        self._benches.terms = replace(self._benches.terms, stage=stage)

    def deploy(
        self, candidate: Candidate, *, fresh: bool = False, in_production: bool = False
    ) -> Any:
        kind = self._call("deploy", candidate, fresh=fresh, in_production=in_production)
        return SimpleNamespace(kind=kind)

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        try:
            point: Point = self._call("measure", level, seed, least_s)
        except ClientLimitError as error:
            self.sendable.fell_behind(error, level)
            raise
        return self._kept_up(point, level)

    def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        try:
            point: Point = self._call("soak", level, seed, least_s)
        except ClientLimitError as error:
            self.sendable.fell_behind(error, level)
            raise
        return self._kept_up(point, level)

    def once(self, level: float, seed: int, window: Window) -> Point:
        point: Point = self._call("once", level, seed, window)
        return point

    def one_at_a_time(self, seed: int) -> Mapping[str, float]:
        result: Mapping[str, float] = self._call("one_at_a_time", seed)
        return result

    def many_at_once(self, concurrency: int, seed: int) -> float:
        return float(self._call("many_at_once", concurrency, seed))

    def saturate(self, concurrency: int, seed: int, least_s: float = 0.0) -> Measurement:
        result: Measurement = self._call("saturate", concurrency, seed, least_s)
        return result

    def overload(self, capacity: float, slo: Slo, seed: int) -> Overload:
        result: Overload = self._call("overload", capacity, slo, seed)
        return result

    def answers(self) -> Mapping[str, ConfigAnswers]:
        result: Mapping[str, ConfigAnswers] = self._call("answers")
        return result

    def warm_up(self, candidate: Candidate, texts: Mapping[str, str]) -> WarmUp | None:
        result: WarmUp | None = self._call("warm_up", candidate, texts)
        return result

    def lost(self, reason: Reason) -> None:
        self._call("lost", reason)

    def _kept_up(self, point: Point, level: float) -> Point:
        self.sendable.kept_up(level)
        self._measured(point)
        return point

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        with self._book.phase(Phase.DEPLOYING if name == "deploy" else Phase.MEASURING):
            return self._benches.call(_Call(name, arguments, named))
