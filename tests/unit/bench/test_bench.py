from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from synthetic import NO_ERRORS, P99_40MS, synthetic_server

from tuner.bench.bench import Bench, BenchRules
from tuner.errors import InterruptedRunError, ServerGoneError
from tuner.load.answers import Answers
from tuner.load.generator import Window
from tuner.load.measurement import Arrivals, LoadPoint, Measurement, ServerStatistics
from tuner.run.timebook import TimeBook
from tuner.space.candidate import Candidate
from tuner.triton.server import Endpoints

ONE = Candidate({"instance_group.count": 1})
CACHED = Candidate({"response_cache.enable": True}, ("--cache-config=local,size=1024",))


class CountingDeployer:
    def __init__(self) -> None:
        self.log: list[str] = []
        self.servers = 0

    def fresh(self) -> None:
        self.log.append("fresh")
        self.servers += 1

    def deploy(self, candidate: Candidate) -> Any:
        self.log.append("deploy")
        cache = SimpleNamespace(enable=bool(candidate.server_args))
        return SimpleNamespace(
            endpoints=Endpoints("h", f"grpc-{self.servers}", None),
            running=SimpleNamespace(response_cache=cache),
        )


class EmulatedLoad:
    """Overloaded above 100/s: the server is left with a backlog."""

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        measurement = synthetic_server(load.level, 100.0)
        return dataclasses.replace(measurement, backlog=load.level > 100)

    def answers(self) -> Answers:
        return Answers(none_because="emulated")


def a_bench(
    deployer: CountingDeployer, checkpoint: Any = lambda: None, load: Any = None
) -> tuple[Bench, list[Any]]:
    made: list[Any] = []

    def generator(endpoints: Endpoints) -> Any:
        made.append(endpoints)
        return load or EmulatedLoad()

    rules = BenchRules(
        slos=[P99_40MS, NO_ERRORS],
        arrivals=Arrivals.POISSON,
        window=lambda _: Window(1, 0, 10),
        checkpoint=checkpoint,
        measured=lambda _: None,
    )
    return Bench(deployer, generator, rules, TimeBook()), made


def test_nothing_is_measured_before_something_is_deployed() -> None:
    bench, _ = a_bench(CountingDeployer())
    with pytest.raises(ServerGoneError, match="no candidate"):
        bench.measure(10, 1)


def test_answers_are_those_of_the_deployed_candidate() -> None:
    bench, _ = a_bench(CountingDeployer())
    with pytest.raises(ServerGoneError, match="no candidate"):
        bench.answers()
    bench.deploy(ONE)
    assert bench.answers().none_because == "emulated"


def test_a_generator_is_made_once_a_server() -> None:
    deployer = CountingDeployer()
    bench, made = a_bench(deployer)
    bench.deploy(ONE)
    bench.deploy(ONE)
    assert len(made) == 1
    bench.deploy(ONE, fresh=True)
    assert len(made) == 2


def test_a_candidate_with_a_cache_always_gets_a_fresh_server() -> None:
    deployer = CountingDeployer()
    bench, _ = a_bench(deployer)
    bench.deploy(CACHED)
    assert deployer.log == ["fresh", "deploy"]


def test_a_cache_is_filled_until_its_hit_rate_no_longer_rises() -> None:
    hits = iter([200, 500, 700, 704, 800, 900])
    asked: list[LoadPoint] = []

    class CachedLoad:
        def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
            asked.append(load)
            counts = (1000, 0, 0, 0, 0.0, 0.0, 0.0, 0.0)
            server = ServerStatistics(*counts, cache_hit_count=next(hits))
            return dataclasses.replace(synthetic_server(load.level, 100.0), server=server)

    bench, _ = a_bench(CountingDeployer(), load=CachedLoad())
    bench.deploy(CACHED)
    assert [load.arrivals for load in asked] == [Arrivals.CLOSED] * 4
    bench.deploy(ONE)
    assert len(asked) == 4


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


def test_a_stop_is_heeded_before_each_step() -> None:
    def stop() -> None:
        raise InterruptedRunError("stopped")

    deployer = CountingDeployer()
    bench, _ = a_bench(deployer, stop)
    with pytest.raises(InterruptedRunError):
        bench.deploy(ONE)
    assert deployer.log == []
