"""A bench whose load generator gives one made-up measurement after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from builders.candidates import candidate_of
from builders.measurements import NO_ERRORS, P99_40MS, latency_slo, synthetic_server

from tuner.errors import LoadFailedError, ServerGoneError, UndecidedError
from tuner.load.probes.answers import ConfigAnswers
from tuner.load.probes.preparing import Filling
from tuner.load.probes.warming import FirstCalls
from tuner.measurement.host_use import HostUse
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement, Rejected
from tuner.measurement.window import Window
from tuner.meter.again import LONG_S
from tuner.meter.bench import TritonBench
from tuner.meter.rules import BenchRules
from tuner.prepare.timebook import TimeBook
from tuner.server.server import Endpoints
from tuner.space.candidate import Candidate
from tuner.triton.changes import DeploymentKind

#: What the load generator makes of a load.
Step = Callable[[LoadPoint], Measurement]
ONE = candidate_of({"instance_group.count": 1})
BOUNDED = Window(1, 0, 10, bounds=(latency_slo(share=0.99, within_s=0.04),))


def quiet(load: LoadPoint) -> Measurement:
    return replace(synthetic_server(load.level, 100.0), late_sends=0.0, wall_s=4.0)


def behind(load: LoadPoint) -> Measurement:
    return replace(quiet(load), late_sends=0.9, sent_per_s=30.0)


def others(load: LoadPoint) -> Measurement:
    return replace(quiet(load), host=HostUse(other_cpu_percent=40.0))


def missed(load: LoadPoint) -> Measurement:
    return replace(quiet(load), p99_latency_us=90e3)


def stalled(load: LoadPoint) -> Measurement:
    """The load was sent as asked, and an SLO missed while the machine stood still at times."""
    return replace(missed(load), host=HostUse(stalled_percent=2.0))


def stalled_more(load: LoadPoint) -> Measurement:
    return replace(missed(load), host=HostUse(stalled_percent=9.0))


def overloaded(load: LoadPoint) -> Measurement:
    """A thousand requests had no answer, beside stalls of 2 %."""
    measurement = stalled(load)
    due = measurement.completed_count + 1000
    return replace(measurement, due_per_s=due / measurement.duration_s)


def behind_and_stalled(load: LoadPoint) -> Measurement:
    return replace(behind(load), host=HostUse(stalled_percent=9.0))


def long_behind(load: LoadPoint) -> Measurement:
    return replace(behind(load), duration_s=LONG_S)


def long_behind_and_stalled(load: LoadPoint) -> Measurement:
    return replace(behind_and_stalled(load), duration_s=LONG_S)


def gone(_: LoadPoint) -> Measurement:
    raise ServerGoneError("the server crashed")


def failing(_: LoadPoint) -> Measurement:
    raise LoadFailedError("perf_analyzer failed")


def undecided(_: LoadPoint) -> Measurement:
    raise UndecidedError("ended early, but no latency SLO was certainly missed")


class Script:
    """A load generator that does one thing after the other."""

    def __init__(self, *steps: Step, windows: list[Window] | None = None) -> None:
        self.steps = list(steps)
        self.windows = [] if windows is None else windows

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        self.windows.append(window)
        return replace(self.steps.pop(0)(load), load=load, seed=seed)

    def await_first_answers(self, patience_s: float, note: Any) -> Sequence[FirstCalls]:
        return ()

    def answers(self) -> Any:
        return {"": ConfigAnswers(none_because="emulated")}

    def fill(self, seed: int, size: int | None) -> Filling:
        raise AssertionError("no cache here")


class StandingDeployer:
    def __init__(self) -> None:
        self.freshened = 0

    def fresh(self) -> None:
        self.freshened += 1

    def deploy(self, candidate: Candidate) -> Any:
        return SimpleNamespace(kind=DeploymentKind.UNCHANGED, endpoints=Endpoints("h", "g", None))


def bench_rules(**changes: Any) -> BenchRules:
    """Rules with windows of a second, whose measurements nobody receives."""
    usual: dict[str, Any] = {
        "slos": [P99_40MS, NO_ERRORS],
        "arrivals": Arrivals.POISSON,
        "window": lambda _, __: Window(1, 0, 10),
        "soak": lambda _, __, least_s: Window(max(30.0, least_s), 0, 100),
        "checkpoint": lambda: None,
        "measured": lambda _: None,
    }
    return BenchRules(**{**usual, **changes})


def a_bench(
    *steps: Step,
    book: TimeBook | None = None,
    disturbed: Callable[[str, float], None] = lambda *_: None,
    note: Callable[[str], None] = lambda _: None,
    checkpoint: Callable[[], None] = lambda: None,
    deployer: Any = None,
    windows: list[Window] | None = None,
) -> tuple[TritonBench, list[Rejected]]:
    rejected: list[Rejected] = []
    script = Script(*steps, windows=windows)
    rules = bench_rules(
        window=lambda _, __: BOUNDED,
        checkpoint=checkpoint,
        disturbed=disturbed,
        note=note,
        rejected=rejected.append,
    )
    deployer = deployer or StandingDeployer()
    bench = TritonBench(deployer, lambda _: script, rules, book or TimeBook())
    bench.deploy(ONE)
    return bench, rejected


@contextmanager
def sleeping() -> Iterator[list[float]]:
    """What the bench slept, in no time."""
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    with patch("tuner.meter.bench.time", clock), patch("tuner.meter.again.time", clock):
        yield slept
