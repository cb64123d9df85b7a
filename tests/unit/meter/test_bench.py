from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from builders.again_bench import ONE, bench_rules
from builders.candidates import candidate_of, the_one
from builders.measurements import (
    P99_40MS,
    part_of,
    synthetic_measurement,
    synthetic_server,
)

from tuner.errors import ClientLimitError, InterruptedRunError, LoadFailedError, ServerGoneError
from tuner.load.latency import latency_figures
from tuner.load.probes.answers import ConfigAnswers
from tuner.load.probes.lone import LoneRequests
from tuner.load.probes.preparing import Filling
from tuner.load.probes.warming import CallTimes, FirstCalls
from tuner.machine.cpus import ANY, Cores
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement, Stage
from tuner.measurement.window import EarlyEnd, Window
from tuner.meter.bench import QUICK_LOOK, TritonBench
from tuner.meter.cache import CacheRules, ResponseCache
from tuner.prepare.timebook import TimeBook
from tuner.sentences import sentence
from tuner.server.server import Endpoints
from tuner.space.candidate import Candidate
from tuner.spec.workload import CacheState
from tuner.triton.changes import DeploymentKind

CACHED = candidate_of({"response_cache.enable": True}, 1024)


class CountingDeployer:
    def __init__(self) -> None:
        self.log: list[str] = []
        self.servers = 0
        self.kind = DeploymentKind.RELOAD
        self.outside: list[int] = []

    def give(self, cpus: tuple[int, ...]) -> None:
        self.log.append(f"give {cpus}")

    def put_back(self) -> int:
        return self.outside.pop(0) if self.outside else 0

    def fresh(self) -> None:
        self.log.append("fresh")
        self.servers += 1

    def deploy(self, candidate: Candidate) -> Any:
        self.log.append("deploy")
        cache = SimpleNamespace(enable=bool(candidate.cache_bytes))
        return SimpleNamespace(
            kind=self.kind,
            endpoints=Endpoints("h", f"grpc-{self.servers}", None),
            running=SimpleNamespace(response_cache=cache),
        )


class EmulatedLoad:
    """Overloaded above 100/s: the server is left with a backlog."""

    def __init__(self) -> None:
        self.filled: list[int | None] = []
        self.awaited: list[float] = []

    def await_first_answers(self, patience_s: float, note: Any) -> Sequence[FirstCalls]:
        self.awaited.append(patience_s)
        return ()

    def fill(self, seed: int, size: int | None) -> Filling:
        self.filled.append(size)
        return Filling(5, 7, 1.0)

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        measurement = synthetic_server(load.level, 100.0)
        return dataclasses.replace(measurement, backlog=load.level > 100)

    def seconds_for(self, count: int, patience_s: float) -> float | None:
        return None

    def seconds_alone(self, patience_s: float) -> Mapping[str, float] | None:
        took_s = self.seconds_for(1, patience_s)
        return None if took_s is None else {"": took_s}

    def ask_alone(self, stream: str, patience_s: float) -> LoneRequests | None:
        return None

    def answers(self) -> Mapping[str, ConfigAnswers]:
        return {"": ConfigAnswers(none_because="emulated")}


def caches(state: CacheState, note: Any = lambda _: None) -> CacheRules:
    """A candidate with server arguments has a cache."""
    return CacheRules(state, lambda c: ResponseCache(1024) if c.cache_bytes else None, note)


def a_bench(
    deployer: CountingDeployer,
    checkpoint: Any = lambda: None,
    load: Any = None,
    cache: CacheRules | None = None,
    cores: Cores = ANY,
    note: Any = lambda _: None,
) -> tuple[TritonBench, list[Any]]:
    made: list[Any] = []

    def generator(endpoints: Endpoints) -> Any:
        made.append(endpoints)
        return load or EmulatedLoad()

    rules = bench_rules(checkpoint=checkpoint, cache=cache or CacheRules(), note=note)
    return TritonBench(deployer, generator, rules, TimeBook(), cores), made


def deployed(load: Any) -> TritonBench:
    bench, _ = a_bench(CountingDeployer(), load=load)
    bench.deploy(ONE)
    return bench


def test_nothing_is_measured_before_something_is_deployed() -> None:
    bench, _ = a_bench(CountingDeployer())
    with pytest.raises(ServerGoneError, match="no candidate"):
        bench.measure(10, 1)


def test_answers_are_those_of_the_deployed_candidate() -> None:
    bench, _ = a_bench(CountingDeployer())
    with pytest.raises(ServerGoneError, match="no candidate"):
        bench.answers()
    bench.deploy(ONE)
    assert the_one(bench.answers()).none_because == "emulated"


def test_a_generator_is_made_once_a_server() -> None:
    deployer = CountingDeployer()
    bench, made = a_bench(deployer)
    bench.deploy(ONE)
    bench.deploy(ONE)
    assert len(made) == 1
    bench.deploy(ONE, fresh=True)
    assert len(made) == 2


def test_a_candidate_with_a_cache_gets_a_fresh_server_with_a_full_cache() -> None:
    deployer, load, notes = CountingDeployer(), EmulatedLoad(), []  # type: ignore[var-annotated]
    bench, _ = a_bench(deployer, load=load, cache=caches(CacheState.WARM, notes.append))
    bench.deploy(CACHED)
    bench.measure(50, 1)
    bench.measure(60, 2)
    assert deployer.log == ["fresh", "deploy"]
    assert load.filled == [1024]
    assert notes == [Filling(5, 7, 1.0).sentence]
    bench.deploy(CACHED)
    assert deployer.log == ["fresh", "deploy"] * 2
    assert load.filled == [1024, 1024]
    bench.deploy(ONE)
    assert deployer.log == [*["fresh", "deploy"] * 2, "deploy"]
    assert len(load.filled) == 2


def test_every_measurement_of_a_cache_that_must_be_empty_gets_a_fresh_server() -> None:
    deployer, load = CountingDeployer(), EmulatedLoad()
    bench, _ = a_bench(deployer, load=load, cache=caches(CacheState.EMPTY))
    bench.deploy(CACHED)
    bench.one_at_a_time(1)
    bench.measure(50, 1)
    bench.measure(60, 2)
    assert deployer.log == ["fresh", "deploy"] * 3
    assert load.filled == []
    deployer.log.clear()
    bench.deploy(ONE)
    deployer.log.clear()
    bench.measure(50, 1)
    bench.measure(60, 2)
    assert deployer.log == []


class Look(EmulatedLoad):
    """One quick look at so many clients, which shows this."""

    def __init__(self, clients: int, **shows: Any) -> None:
        super().__init__()
        self.clients, self.shows = clients, shows

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        assert (load.arrivals, load.level, seed) == (Arrivals.CLOSED, self.clients, 3)
        assert window == QUICK_LOOK
        return dataclasses.replace(synthetic_server(60, 100.0), **self.shows)


def test_a_look_counts_requests_whatever_their_batch() -> None:
    assert deployed(Look(40, batch_size=2)).many_at_once(40, 3) == pytest.approx(30.0)


def test_time_of_sequential_requests_is_reported_in_seconds() -> None:
    bench = deployed(Look(1, avg_latency_us=12_000.0))
    assert bench.one_at_a_time(3) == {"": pytest.approx(0.012)}


def test_a_backlog_is_left_behind_with_its_server() -> None:
    deployer = CountingDeployer()
    bench, _ = a_bench(deployer)
    bench.deploy(ONE)
    bench.measure(500, 1)
    deployer.log.clear()
    bench.measure(50, 2)
    assert deployer.log == ["fresh", "deploy"]
    deployer.log.clear()
    bench.measure(60, 3)
    bench.deploy(ONE)
    assert deployer.log == ["deploy"]


def test_stop_request_takes_effect_before_each_step() -> None:
    def stop() -> None:
        raise InterruptedRunError("stopped")

    deployer = CountingDeployer()
    bench, _ = a_bench(deployer, stop)
    with pytest.raises(InterruptedRunError):
        bench.deploy(ONE)
    assert deployer.log == []


@pytest.mark.parametrize(
    "step",
    [
        lambda bench: bench.deploy(ONE),
        lambda bench: bench.measure(50, 1),
        lambda bench: bench.one_at_a_time(1),
        lambda bench: bench.many_at_once(8, 1),
        lambda bench: bench.overload(50, P99_40MS, 1),
        lambda bench: bench.answers(),
    ],
)
def test_after_a_stop_nothing_is_begun_on_a_deployed_candidate_either(step: Any) -> None:
    stopped: list[bool] = []

    def checkpoint() -> None:
        if stopped:
            raise InterruptedRunError("stopped")

    class Unasked(EmulatedLoad):
        def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
            raise AssertionError("measured after the stop")

        def answers(self) -> Mapping[str, ConfigAnswers]:
            raise AssertionError("asked after the stop")

    bench, _ = a_bench(CountingDeployer(), checkpoint, Unasked())
    bench.deploy(ONE)
    stopped.append(True)
    with pytest.raises(InterruptedRunError):
        step(bench)


def test_the_first_answers_are_waited_for_whenever_a_model_was_loaded() -> None:
    deployer, load = CountingDeployer(), EmulatedLoad()
    bench, _ = a_bench(deployer, load=load)
    deployer.kind = DeploymentKind.UNCHANGED  # loaded before, but never asked
    bench.deploy(ONE)
    bench.deploy(ONE)
    assert load.awaited == [120.0]
    deployer.kind = DeploymentKind.RELOAD
    bench.deploy(ONE)
    assert load.awaited == [120.0, 120.0]


def test_a_server_that_gave_no_first_answer_is_left_behind() -> None:
    class Silent(EmulatedLoad):
        def await_first_answers(self, patience_s: float, note: Any) -> Sequence[FirstCalls]:
            raise LoadFailedError("no first answer")

    deployer = CountingDeployer()
    bench, _ = a_bench(deployer, load=Silent())
    for _ in range(2):
        with pytest.raises(LoadFailedError):
            bench.deploy(ONE)
    assert deployer.log == ["deploy", "fresh", "deploy"]


class Watched(EmulatedLoad):
    """Keeps the window of each load."""

    def __init__(self) -> None:
        super().__init__()
        self.windows: list[Window] = []

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        self.windows.append(window)
        return super().measure(load, window, seed)


def test_a_look_is_over_within_a_second() -> None:
    load = Watched()
    bench = deployed(load)
    bench.one_at_a_time(1)
    bench.many_at_once(8, 2)
    assert len(load.windows) == 2
    assert all(0.0 < w.warmup_s < w.duration_s for w in load.windows)
    assert all(w.warmup_s + w.duration_s < 1.0 for w in load.windows)


def test_measurement_lasts_at_least_the_requested_time() -> None:
    load = Watched()
    bench = deployed(load)
    for least_s in (0.0, 0.1, 30.0):
        bench.measure(50.0, 1, least_s)
    lengths = [w.duration_s for w in load.windows]
    assert lengths == [lengths[0], lengths[0], 30.0]
    assert all(w.deadline_s > w.total_s for w in load.windows)


@pytest.mark.parametrize(
    ("stage", "ends_early"),
    [(Stage.SEARCH, EarlyEnd.LATE), (Stage.CONFIRMATION, EarlyEnd.WAITING)],
)
def test_only_a_search_ends_a_load_at_the_first_certain_miss(
    stage: Stage, ends_early: EarlyEnd
) -> None:
    load = Watched()
    bench = deployed(load)
    bench.enter(stage)
    bench.measure(50.0, 1)
    assert [window.ends_early for window in load.windows] == [ends_early]


def test_load_that_decides_nothing_runs_once_at_the_requested_level() -> None:
    durations_s: list[float] = []

    class Watched(EmulatedLoad):
        def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
            durations_s.append(window.duration_s)
            measurement = synthetic_measurement(load.level, 90e3)  # the first of a loaded model
            starved = dataclasses.replace(measurement, sent_per_s=0.5 * load.level)
            return starved if load.level > 60 else measurement

    bench = deployed(Watched())
    point = bench.once(50.0, 1, Window(5.0, 0.5, 30.0))
    assert not point.passed
    with pytest.raises(ClientLimitError):
        bench.once(70.0, 1, Window(5.0, 0.5, 30.0))
    assert durations_s == [5.0, 5.0]


def test_soak_has_a_separate_window_and_is_judged_like_any_other() -> None:
    load = Watched()
    bench = deployed(load)
    assert bench.soak(90, 1, 5.0).passed
    assert not bench.soak(120, 1, 45.0).passed
    assert bench.measure(90, 1).passed
    assert [window.duration_s for window in load.windows] == [30.0, 45.0, 1]


class Warming(EmulatedLoad):
    """Answers nothing for a while in the first of its measurements, each with so many late."""

    def __init__(self, late: Sequence[int]) -> None:
        super().__init__()
        self.late = [*late]
        self.measurements = 0
        self.first_call_s = 0.7

    def await_first_answers(self, patience_s: float, note: Any) -> Sequence[FirstCalls]:
        times = CallTimes(self.first_call_s, 0.004)
        return (FirstCalls("m", {1: times}, left=[3], unlike_config=["y is X"]),)

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        self.measurements += 1
        late = self.late.pop(0) if self.late else 0
        measurement = synthetic_measurement(load.level, 20e3, count=1000)
        rest = measurement.latencies_us
        assert rest is not None
        ascending = np.sort(np.append(np.full(late, 500e3), rest[late:]))
        outside = {"outside_gaps_us": rest[late:]} if late else {}
        return dataclasses.replace(measurement, **latency_figures(ascending), **outside)


@pytest.mark.parametrize(
    ("late", "count", "passed"),
    [([], 1, True), ([5], 1, True), ([100, 20], 3, True), ([100] * 3, 3, False)],
)
def test_a_model_that_answers_nothing_for_a_while_is_measured_again_until_it_is_warm(
    late: list[int], count: int, passed: bool
) -> None:
    """Unless that changes nothing. What comes back at the same load counts."""
    warming = Warming(late)
    bench = deployed(warming)
    assert bench.measure(50.0, 1).passed is passed
    assert warming.measurements == count
    warming.late = [100]
    assert bench.measure(50.0, 1).passed is (count < 3), "two for all after a deployment"
    bench.deploy(ONE)
    warming.late = [100]
    assert bench.measure(50.0, 1).passed


def test_slow_first_calls_are_a_warning_of_each_measurement_and_one_note_of_the_run() -> None:
    notes: list[str] = []
    load = Warming([])
    bench, _ = a_bench(CountingDeployer(), load=load, note=notes.append)
    for _ in range(2):
        load.first_call_s = 0.004
        bench.deploy(candidate_of({"instance_group.count": 2}))
        load.first_call_s = 0.7
        bench.deploy(ONE)
        (warned,) = bench.measure(50.0, 1).measurement.warnings[-1:]
        assert warned == FirstCalls("m", {1: CallTimes(0.7, 0.004)}).slow
    remarks = FirstCalls("m", left=[3], unlike_config=["y is X"]).remarks
    remark = " ".join(map(sentence, remarks))
    assert "m does not return what its config says: y is X." in remark
    assert notes == [remark, sentence(warned)]


def test_sequential_requests_are_timed_for_each_stream_and_a_slow_stream_for_its_responses() -> (
    None
):
    class Mix(EmulatedLoad):
        slow_s = 0.05

        def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
            measurement = dataclasses.replace(synthetic_server(60, 100.0), avg_latency_us=12e3)
            parts = {"a": 4e3, "b": 50e3}
            part = part_of(measurement)
            streams = {n: dataclasses.replace(part, avg_latency_us=us) for n, us in parts.items()}
            return dataclasses.replace(measurement, streams=streams)

        def seconds_alone(self, patience_s: float) -> Mapping[str, float] | None:
            return {"a": 0.004, "b": self.slow_s, "": 0.75 * 0.004 + 0.25 * self.slow_s}

        def seconds_for(self, count: int, patience_s: float) -> float | None:
            return 2.0 * self.slow_s

    load = Mix()
    bench = deployed(load)
    seen = bench.one_at_a_time(3)
    assert seen == {"a": pytest.approx(0.004), "b": pytest.approx(0.05), "": pytest.approx(0.012)}
    load.slow_s = 0.4
    assert bench.one_at_a_time(3) == {"a": 0.004, "b": 0.4, "": pytest.approx(0.103)}
    assert bench.many_at_once(16, 3) == pytest.approx(16 / 0.8)


SPLIT = Cores((0,), (1,), of=2)


def test_server_keeps_its_cpus_and_has_all_of_them_as_in_production() -> None:
    deployer = CountingDeployer()
    bench, _ = a_bench(deployer, cores=SPLIT)
    bench.deploy(ONE)
    bench.deploy(ONE, fresh=True, in_production=True)
    bench.measure(150.0, 1)  # it leaves a backlog: the next one needs a fresh server
    bench.measure(50.0, 1)
    bench.deploy(ONE, fresh=True)
    given = [entry for entry in deployer.log if entry.startswith("give")]
    assert given == ["give (0,)", "give ()", "give ()", "give (0,)"]


@pytest.mark.parametrize("cores", [ANY, Cores((0, 1), (2,))])
def test_server_is_given_no_cpus_where_the_run_decides_none(cores: Cores) -> None:
    deployer = CountingDeployer()
    a_bench(deployer, cores=cores)[0].deploy(ONE)
    assert deployer.log == ["deploy"]


def test_threads_that_left_the_servers_cpus_are_put_back_before_each_load() -> None:
    deployer, notes = CountingDeployer(), list[str]()
    bench, _ = a_bench(deployer, cores=SPLIT, note=notes.append)
    bench.deploy(ONE)
    deployer.outside = [2, 0, 3]
    for _ in range(3):
        bench.measure(50.0, 1)
    assert [text.split(" and")[0] for text in notes] == ["2 threads of the server had left CPU 0"]
    assert deployer.outside == []
    deployer.outside = [2]
    bench.deploy(ONE, fresh=True, in_production=True)
    bench.measure(50.0, 1)
    assert deployer.outside == [2]  # a server that may use all CPUs leaves none
