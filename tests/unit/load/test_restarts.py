from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from builders.measurements import latency_slo, synthetic_measurement

from tuner.load.restarts import combine
from tuner.load.streams_load import StreamsLoad
from tuner.measurement.host_use import HostUse
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

NO_SETUP: Any = SimpleNamespace(streams=())
CLOSED = LoadPoint(Arrivals.CLOSED, 32)
WINDOW = Window(duration_s=3.0, warmup_s=0.5, deadline_s=30.0)


class Bistable:
    """Settles into another mode at each start."""

    def __init__(self, *throughputs: float) -> None:
        self.throughputs = list(throughputs)
        self.asked: list[tuple[Window, int]] = []

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        self.asked.append((window, seed))
        rate = self.throughputs.pop(0)
        p99_us = 1e6 * load.level / rate
        found = synthetic_measurement(load.level, p99_us, served=rate, arrivals=load.arrivals)
        return replace(found, seed=seed, duration_s=window.duration_s, wall_s=2.0)


def test_a_closed_loop_is_started_several_times_in_the_same_time() -> None:
    generator = Bistable(1667.0, 1480.0, 1500.0)
    found = StreamsLoad(generator, 3, NO_SETUP).measure(CLOSED, WINDOW, 7)
    assert [window.duration_s for window, _ in generator.asked] == [1.0] * 3
    assert len({seed for _, seed in generator.asked}) == 3
    assert (found.seed, found.load, found.duration_s, found.wall_s) == (7, CLOSED, 3.0, 6.0)
    assert found.throughput_infer_per_s == pytest.approx((1667 + 1480 + 1500) / 3)
    assert [start.throughput_infer_per_s for start in found.restarts] == [1667.0, 1480.0, 1500.0]
    assert found.completed_count == 3000
    assert any("1,480 to 1,667" in warning for warning in found.warning_texts)


def test_percentiles_are_over_all_requests() -> None:
    fast, slow = (synthetic_measurement(32, p99) for p99 in (10_000.0, 50_000.0))
    found = combine([replace(m, load=CLOSED) for m in (fast, slow)])
    assert found.latencies_us is not None
    assert found.latencies_us.size == 2000
    assert found.p50_latency_us == 10_000.0  # all of the fast start, none of the slow one
    assert 49_000.0 < found.p99_latency_us <= 50_000.0
    assert found.avg_latency_us == pytest.approx(
        np.mean([fast.avg_latency_us, slow.avg_latency_us])
    )
    assert found.restarts == (Restart(32, 10_000.0), Restart(32, 50_000.0))


def test_failures_are_added_up_and_come_as_late_as_those_of_the_worst_start() -> None:
    full = FailureReason.QUEUE_FULL
    late, early = Failures(3, 50e3, 60e3), Failures(4, 1e3, 90e3)
    starts = [
        replace(synthetic_measurement(32), failures=f) for f in ({full: late}, {full: early}, {})
    ]
    assert combine(starts).failures == {full: Failures(7, 50e3, 90e3)}


def test_equal_starts_are_no_modes() -> None:
    found = StreamsLoad(Bistable(1500.0, 1490.0, 1510.0), 3, NO_SETUP).measure(CLOSED, WINDOW, 1)
    assert ReasonKind.CLOSED_LOOP_MODES not in [w.kind for w in found.warnings]


def test_no_start_is_shorter_than_a_second() -> None:
    generator = Bistable(1.0, 1.0, 1.0)
    StreamsLoad(generator, 3, NO_SETUP).measure(CLOSED, replace(WINDOW, duration_s=0.6), 1)
    assert [window.duration_s for window, _ in generator.asked] == [1.0] * 3


@pytest.mark.parametrize(
    ("load", "count"), [(LoadPoint(Arrivals.POISSON, 100.0), 3), (CLOSED, 1)], ids=str
)
def test_open_loops_and_single_starts_are_passed_on(load: LoadPoint, count: int) -> None:
    generator = Bistable(100.0)
    found = StreamsLoad(generator, count, NO_SETUP).measure(load, WINDOW, 1)
    assert generator.asked == [(WINDOW, 1)]
    assert found.restarts == ()


def test_the_bounds_of_the_one_stream_are_those_of_all_its_requests() -> None:
    ours, all_, other = (latency_slo(0.9, 0.06, name) for name in ("steady", "", "quick"))
    generator = Bistable(100.0)
    setup: Any = SimpleNamespace(streams=[SimpleNamespace(name="steady")])
    window = replace(WINDOW, bounds=(ours, all_, other))
    StreamsLoad(generator, 1, setup).measure(CLOSED, window, 1)
    ((given, _),) = generator.asked
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
    found = combine(
        [
            replace(synthetic_measurement(32), server=server, host=host)
            for server, host in zip(servers, hosts, strict=True)
        ]
    )
    assert found.server is not None
    assert (found.server.success_count, found.server.execution_count) == (400, 150)
    assert found.server.queue_us == pytest.approx(25.0)
    assert found.server.compute_infer_us == pytest.approx(250.0)
    assert found.server.batch_stats == ((2, 100, 1200), (4, 50, 900))
    assert found.host.cpu_percent == 30.0
    assert found.host.other_cpu_percent == 9.0
    assert (found.host.gpu_clock_mhz, found.host.cache_evictions) == (1200.0, 12)
    assert found.host.governor is None
