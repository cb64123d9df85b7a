"""The protocols of a bench, for search, proof and checks, and of a bench's load generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tuner.load.generators import LoadGenerator
from tuner.load.probes.answers import ConfigAnswers
from tuner.load.probes.lone import LoneRequests
from tuner.load.probes.overload import Overload
from tuner.load.probes.preparing import Filling
from tuner.load.probes.warming import FirstCalls
from tuner.load.probes.warmup import Note, WarmUp
from tuner.measurement.batch_profile import BatchCall
from tuner.measurement.measurement import Measurement, Stage
from tuner.measurement.window import Window
from tuner.meter.evaluate import ClientCeiling
from tuner.reason import Reason
from tuner.score.point import Point
from tuner.space.candidate import Candidate
from tuner.spec.slo import Slo
from tuner.triton.deploy import Deployment


class Bench(Protocol):
    """Serves one candidate at a time and puts load on it; see `tuner.meter.bench.TritonBench`."""

    sendable: ClientCeiling
    #: The timed first calls of the deployed candidate, of a single stream; see `batch_profile`.
    batch_calls: tuple[BatchCall, ...]

    def enter(self, stage: Stage) -> None: ...

    def deploy(
        self, candidate: Candidate, *, fresh: bool = False, in_production: bool = False
    ) -> Deployment: ...

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point: ...

    def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point: ...

    def once(self, level: float, seed: int, window: Window) -> Point: ...

    def one_at_a_time(self, seed: int) -> Mapping[str, float]: ...

    def many_at_once(self, concurrency: int, seed: int) -> float: ...

    def saturate(self, concurrency: int, seed: int, least_s: float = 0.0) -> Measurement: ...

    def overload(self, capacity: float, slo: Slo, seed: int) -> Overload: ...

    def answers(self) -> Mapping[str, ConfigAnswers]: ...

    def warm_up(self, candidate: Candidate, texts: Mapping[str, str]) -> WarmUp | None: ...

    def lost(self, reason: Reason) -> None: ...


class LoadClient(LoadGenerator, Protocol):
    """A load generator that can also fill a cache, time first calls and record answers."""

    def await_first_answers(
        self, patience_s: float, note: Callable[[str], None]
    ) -> Sequence[FirstCalls]: ...

    def warm_up(self, texts: Mapping[str, str], patience_s: float, note: Note) -> WarmUp | None: ...

    def seconds_for(self, count: int, patience_s: float) -> float | None: ...

    def seconds_alone(self, patience_s: float) -> Mapping[str, float] | None: ...

    def ask_alone(self, stream: str, patience_s: float) -> LoneRequests | None: ...

    def answers(self) -> Mapping[str, ConfigAnswers]: ...

    def fill(self, seed: int, size: int | None) -> Filling: ...
