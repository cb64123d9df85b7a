from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from builders.measurements import latency_slo, synthetic_measurement

from tuner.errors import LoadFailedError, ModelFailsError
from tuner.load.restarts import combine
from tuner.load.streams_load import StreamsLoad
from tuner.measurement.host_use import HostUse, MemoryTrend
from tuner.measurement.measurement import (
    Arrivals,
    FailureReason,
    Failures,
    LoadPoint,
    Measurement,
    Restart,
    ServerStatistics,
)
from tuner.measurement.window import Window
from tuner.reason import ReasonKind
from tuner.record.remedies import remedies
from tuner.server.control import StatisticsSnapshot

NO_SETUP: Any = SimpleNamespace(streams=())
CLOSED = LoadPoint(Arrivals.CLOSED, 32)
WINDOW = Window(duration_s=3.0, warmup_s=0.5, deadline_s=30.0)


class Bistable:
    """Settles into another mode at each start."""

    def __init__(self, *throughputs: float) -> None:
        self.throughputs = list(throughputs)
        self.runs: list[tuple[Window, int]] = []

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        self.runs.append((window, seed))
        rate = self.throughputs.pop(0)
        p99_us = 1e6 * load.level / rate
        measurement = synthetic_measurement(load.level, p99_us, served=rate, arrivals=load.arrivals)
        return replace(measurement, seed=seed, duration_s=window.duration_s, wall_s=2.0)


def test_a_closed_loop_is_started_several_times_in_the_same_time() -> None:
    generator = Bistable(1667.0, 1480.0, 1500.0)
    measurement = StreamsLoad(generator, 3, NO_SETUP).measure(CLOSED, WINDOW, 7)
    assert [window.duration_s for window, _ in generator.runs] == [1.0] * 3
    assert len({seed for _, seed in generator.runs}) == 3
    assert (measurement.seed, measurement.load, measurement.duration_s, measurement.wall_s) == (
        7,
        CLOSED,
        3.0,
        6.0,
    )
    assert measurement.throughput_infer_per_s == pytest.approx((1667 + 1480 + 1500) / 3)
    assert [start.throughput_infer_per_s for start in measurement.restarts] == [
        1667.0,
        1480.0,
        1500.0,
    ]
    assert measurement.completed_count == 3000
    assert any("1,480 to 1,667" in warning for warning in measurement.warning_texts)


def test_percentiles_are_over_all_requests() -> None:
    fast, slow = (synthetic_measurement(32, p99) for p99 in (10_000.0, 50_000.0))
    measurement = combine([replace(m, load=CLOSED) for m in (fast, slow)])
    assert measurement.latencies_us is not None
    assert measurement.latencies_us.size == 2000
    assert measurement.p50_latency_us == 10_000.0  # all of the fast start, none of the slow one
    assert 49_000.0 < measurement.p99_latency_us <= 50_000.0
    assert measurement.avg_latency_us == pytest.approx(
        np.mean([fast.avg_latency_us, slow.avg_latency_us])
    )
    assert measurement.restarts == (Restart(32, 10_000.0), Restart(32, 50_000.0))


def test_failures_are_added_up_and_come_as_late_as_those_of_the_worst_start() -> None:
    full = FailureReason.QUEUE_FULL
    late, early = Failures(3, 50e3, 60e3), Failures(4, 1e3, 90e3)
    starts = [
        replace(synthetic_measurement(32), failures=f) for f in ({full: late}, {full: early}, {})
    ]
    assert combine(starts).failures == {full: Failures(7, 50e3, 90e3)}


def test_equal_starts_are_no_modes() -> None:
    measurement = StreamsLoad(Bistable(1500.0, 1490.0, 1510.0), 3, NO_SETUP).measure(
        CLOSED, WINDOW, 1
    )
    assert ReasonKind.CLOSED_LOOP_MODES not in [w.kind for w in measurement.warnings]


def test_no_start_is_shorter_than_a_second() -> None:
    generator = Bistable(1.0, 1.0, 1.0)
    StreamsLoad(generator, 3, NO_SETUP).measure(CLOSED, replace(WINDOW, duration_s=0.6), 1)
    assert [window.duration_s for window, _ in generator.runs] == [1.0] * 3


@pytest.mark.parametrize(
    ("load", "count"), [(LoadPoint(Arrivals.POISSON, 100.0), 3), (CLOSED, 1)], ids=str
)
def test_open_loops_and_single_starts_are_passed_on(load: LoadPoint, count: int) -> None:
    generator = Bistable(100.0)
    measurement = StreamsLoad(generator, count, NO_SETUP).measure(load, WINDOW, 1)
    assert generator.runs == [(WINDOW, 1)]
    assert measurement.restarts == ()


def test_the_bounds_of_the_one_stream_are_those_of_all_its_requests() -> None:
    ours, all_, other = (latency_slo(0.9, 0.06, name) for name in ("steady", "", "quick"))
    generator = Bistable(100.0)
    setup = setup_answering(0, name="steady")
    window = replace(WINDOW, bounds=(ours, all_, other))
    StreamsLoad(generator, 1, setup).measure(CLOSED, window, 1)
    ((given, _),) = generator.runs
    assert given.bounds == (all_, all_)


def test_server_and_machine_are_summed_up() -> None:
    servers = [
        ServerStatistics(100, 0, 100, 50, 10.0, 1.0, 100.0, 1.0, batch_stats=((2, 50, 500),)),
        ServerStatistics(
            300, 0, 300, 100, 30.0, 1.0, 300.0, 1.0, batch_stats=((2, 50, 700), (4, 50, 900))
        ),
    ]
    hosts = [
        HostUse(cpu_percent=20.0, other_cpu_percent=1.0, gpu_clock_mhz=1800.0, cache_evictions=5),
        HostUse(cpu_percent=40.0, other_cpu_percent=9.0, gpu_clock_mhz=1200.0, cache_evictions=7),
    ]
    measurement = combine(
        [
            replace(synthetic_measurement(32), server=server, host=host)
            for server, host in zip(servers, hosts, strict=True)
        ]
    )
    assert measurement.server is not None
    assert (measurement.server.success_count, measurement.server.execution_count) == (400, 150)
    assert measurement.server.queue_us == pytest.approx(25.0)
    assert measurement.server.compute_infer_us == pytest.approx(250.0)
    assert measurement.server.batch_stats == ((2, 100, 1200), (4, 50, 900))
    assert measurement.host.cpu_percent == 30.0
    assert measurement.host.other_cpu_percent == 9.0
    assert (measurement.host.gpu_clock_mhz, measurement.host.cache_evictions) == (1200.0, 12)
    assert measurement.host.governor is None


def test_memory_is_that_of_the_last_start() -> None:
    measured = synthetic_measurement(32, 20_000.0)
    trends = [MemoryTrend(1e9 + k, k, 1.0, k, 1.0) for k in range(3)]
    starts = [replace(measured, host=HostUse(memory=trend, gpu_memory=trend)) for trend in trends]
    host = combine(starts, ()).host
    assert (host.memory, host.gpu_memory) == (trends[-1], trends[-1])


def setup_answering(*counts: int, name: str = "m") -> Any:
    """Of one stream whose model has answered so many requests whenever it is looked at."""
    left = iter(counts)
    stream = SimpleNamespace(name=name, requests=SimpleNamespace(model="m"))
    control = SimpleNamespace(statistics=lambda _: StatisticsSnapshot(success_count=next(left)))
    return SimpleNamespace(streams=(stream,), site=SimpleNamespace(control=control))


class Failing:
    """A load generator without a result, 10 s after each start."""

    def __init__(self, clock: list[float], error: Exception) -> None:
        self._clock, self._error = clock, error

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        del load, window, seed
        self._clock[0] += 10.0
        raise self._error


@pytest.mark.parametrize(
    ("clients", "answered", "advice"),
    [
        (100_000, 4_000, ["write at most 400 clients in workload.arrivals, or a longer"]),
        (300, 4_000, []),  # each of them gets an answer
        (100_000, 0, []),
    ],
)
def test_closed_loop_of_too_many_clients_says_how_many_fit(
    clients: int, answered: int, advice: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("tuner.load.streams_load.time.monotonic", lambda: clock[0])
    generator = Failing(clock, LoadFailedError("no results by the deadline"))
    load = StreamsLoad(generator, 3, setup_answering(7, 7 + answered))
    with pytest.raises(LoadFailedError, match="no results by the deadline") as failed:
        load.measure(LoadPoint(Arrivals.CLOSED, clients), WINDOW, 1)
    offered = remedies([failed.value.reason])
    assert len(offered) == len(advice)
    assert all(one.startswith(start) for one, start in zip(offered, advice, strict=True))
    named = "100,000 clients are too many for a window of 1 s: the server answered 400/s"
    assert (named in failed.value.message) == bool(advice)


def test_model_that_fails_requests_of_many_clients_is_still_at_fault() -> None:
    load = StreamsLoad(Failing([0.0], ModelFailsError("boom")), 1, setup_answering(0, 1_000))
    with pytest.raises(ModelFailsError, match="boom"):
        load.measure(LoadPoint(Arrivals.CLOSED, 100_000), WINDOW, 1)
