"""What is read of server and machine beside a load, and whether the server is at rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from builders.waits import wait_until

from tuner.errors import InterruptedRunError, ServerGoneError, UndecidedError
from tuner.load.validity import received_count
from tuner.load.watch import sampler as module
from tuner.load.watch.machine import GpuClocks, MachineReading, Stalls
from tuner.load.watch.sampler import (
    Sample,
    Sampler,
    becomes_idle,
    host_use,
    server_statistics,
    statistics_between,
)
from tuner.measurement.window import Window
from tuner.server.control import BatchStatistics, Metrics, MetricSample, StatisticsSnapshot
from tuner.server.memory import gpu_use
from tuner.server.server import Endpoints, Place

BEFORE = StatisticsSnapshot(
    success_count=10,
    inference_count=8,
    execution_count=4,
    queue_ns=1000,
    batches={2: BatchStatistics(4, 400)},
)
AFTER = StatisticsSnapshot(
    success_count=20,
    fail_count=1,
    inference_count=13,
    execution_count=6,
    queue_ns=51_000,
    compute_infer_ns=10_000,
    cache_hit_count=5,
    cache_miss_count=4,
    batches={2: BatchStatistics(5, 500), 3: BatchStatistics(1, 150)},
)


def metrics(**values: float) -> Metrics:
    return Metrics(tuple(MetricSample(name, {"model": "m"}, v) for name, v in values.items()))


def machine(seconds: float, ours: float | None = None, load: float = 1.5) -> MachineReading:
    """Two cores: one idle, 30 % of the other in processes, 10 % stolen, 60 % interrupts."""
    return MachineReading(
        total_s=2 * seconds,
        idle_s=seconds,
        processes_s=0.3 * seconds,
        stolen_s=0.1 * seconds,
        ours_s=ours,
        load_1m=load,
        governor="powersave",
    )


def sample(time_ns: int, counters: StatisticsSnapshot, seen: Metrics | None = None) -> Sample:
    return Sample(time_ns, {"m": counters}, seen, machine(time_ns), gpu_memory=gpu_use(seen))


def test_statistics_are_differences_per_request() -> None:
    statistics = statistics_between(BEFORE, AFTER)
    assert statistics is not None
    assert (statistics.success_count, statistics.fail_count, statistics.cache_hit_count) == (
        10,
        1,
        5,
    )
    assert statistics.queue_us == 5.0  # 50 us over 10 requests, hits included
    assert statistics.compute_infer_us == 2.0  # 10 us over the 5 that were computed
    assert statistics.batch_stats == ((2, 1, 100), (3, 1, 150))
    assert statistics.mean_batch_size == 2.5
    assert statistics.cache_hit_rate == 0.5


def test_counters_that_were_reset_give_nothing() -> None:
    assert statistics_between(AFTER, BEFORE) is None


def test_nothing_happening_is_no_division_by_zero() -> None:
    statistics = statistics_between(AFTER, AFTER)
    assert statistics is not None
    assert (statistics.queue_us, statistics.mean_batch_size, statistics.batch_stats) == (
        0.0,
        None,
        (),
    )


def test_host_use_adds_up_gpus_and_takes_peaks_of_the_fullest_one() -> None:
    def reading(memory: float, waiting: float) -> Metrics:
        gpus = [
            MetricSample(f"nv_gpu_memory_{what}_bytes", {"gpu_uuid": name}, value)
            for name, share in (("a", 2.0), ("b", 1.0))
            for what, value in (("used", memory / share), ("total", 1e3))
        ]
        utilized = [MetricSample("nv_gpu_utilization", {"gpu_uuid": n}, 0.5) for n in "ab"]
        powers = [MetricSample("nv_gpu_power_usage", {"gpu_uuid": n}, 60.0) for n in "ab"]
        rest = metrics(
            nv_inference_pending_request_count=waiting,
            nv_cache_num_evictions=waiting * 10,
            nv_cache_num_entries=7.0,
            nv_cache_util=0.25,
        )
        return Metrics((*gpus, *utilized, *powers, *rest.samples))

    samples = [
        sample(1, BEFORE, reading(100.0, 1.0)),
        sample(2, BEFORE, reading(300.0, 5.0)),
        sample(3, AFTER, reading(200.0, 3.0)),
    ]
    use = host_use(samples, ["m"])
    assert (use.gpus, use.gpu_memory_used_bytes) == (2, 300)
    assert (use.gpu_utilization, use.gpu_power_w) == (0.5, 120.0)
    assert use.pending_requests_max == 5.0
    assert (use.cache_evictions, use.cache_entries, use.cache_utilization) == (20, 7, 0.25)
    assert use.cpu_percent == 50.0
    assert host_use(samples, ["other"]).pending_requests_max is None


@pytest.mark.parametrize("place", [Place.HERE, Place.ELSEWHERE])
def test_gpu_memory_that_the_metrics_lack_comes_from_the_driver(
    monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    """As on a split GPU (MIG), of which Triton tells 0 of 0."""
    names = ("nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes")
    blank = Metrics(tuple(MetricSample(name, {"gpu_uuid": "GPU-a"}, 0.0) for name in names))
    monkeypatch.setattr(module, "has_gpu", lambda: True)
    monkeypatch.setattr(module, "gpu_memory", lambda _: {"MIG-a": (7, 10)})
    with Sampler(lambda: {"m": BEFORE}, lambda: blank, place, period_s=0.001) as sampler:
        wait_until(lambda: len(sampler.between(0, 1 << 62)) > 2)
    used = host_use(sampler.between(0, 1 << 62), ["m"]).gpu_memory_used_bytes
    assert used == (7 if place is Place.HERE else None)


def test_unreadable_figures_are_none() -> None:
    samples = [sample(1, BEFORE), sample(2, AFTER)]
    use = host_use(samples, ["m"])
    assert (use.gpu_memory_used_bytes, use.cache_entries, use.cpu_percent) == (None, None, 50)
    assert host_use(samples[:1], ["m"]).cpu_percent is None
    assert server_statistics(samples[:1], ["m"]) == {}


def test_the_machine_is_split_into_ours_others_and_stolen() -> None:
    samples = [
        Sample(0, {"m": BEFORE}, None, machine(0, ours=5.0)),
        Sample(1, {"m": AFTER}, None, machine(1, ours=5.0)),
        Sample(2, {"m": AFTER}, None, machine(10, ours=6.0, load=2.5), shared_cores=2),
    ]
    use = host_use(samples, ["m"])
    assert use.cores == 2
    # 20 CPU seconds passed: processes had 3 of them, 1 of these was ours
    assert use.other_cpu_percent == pytest.approx(10.0)
    assert use.stolen_cpu_percent == pytest.approx(5.0)
    assert (use.load_1m, use.governor) == (2.5, "powersave")


def test_windows_exclude_stalls_where_they_are_many() -> None:
    samples = [sample(k * 10**9, BEFORE) for k in range(5)]
    long = [(10**9, 10**9 + 30_000_000), (2 * 10**9, 2 * 10**9 + 30_000_000)]
    window = Window(4.0, 0.0, 9.0, quiet_only=True)

    def spells(spans: list[tuple[int, int]], window: Window, stopped_ns: int | None = None) -> Any:
        stalls = Stalls(2, spans)
        watched = Sampler(dict, lambda: None, Place.ELSEWHERE, stalls=stalls)
        watched._samples = samples
        return watched.spells(window, stopped_ns)

    assert spells(long, window) == long
    assert spells(long, replace(window, quiet_only=False)) == ()
    assert spells([(10**9, 10**9 + 19_000_000)], window) == ()  # 0.24 % of 8 s
    with pytest.raises(UndecidedError, match="a stall of the machine"):
        spells(long, window, stopped_ns=5)
    assert host_use(samples, ["m"], Stalls(2, long)).stalled_percent == pytest.approx(0.75)
    assert host_use(samples, ["m"]).stalled_percent is None


def test_others_are_unknown_where_the_server_is_not_our_child() -> None:
    use = host_use([sample(0, BEFORE), sample(1, AFTER)], ["m"])
    assert use.other_cpu_percent is None
    assert use.stolen_cpu_percent == pytest.approx(5.0)


def test_gpus_are_as_bad_as_the_worst_moment() -> None:
    clocks = [GpuClocks(1980.0, throttled=False), None, GpuClocks(1200.0, throttled=True)]
    samples = [Sample(i, {"m": BEFORE}, None, machine(i), c) for i, c in enumerate(clocks)]
    use = host_use(samples, ["m"])
    assert (use.gpu_clock_mhz, use.gpu_throttled) == (1200.0, True)
    assert host_use(samples[:2], ["m"]).gpu_throttled is False
    assert host_use([sample(0, BEFORE), sample(1, AFTER)], ["m"]).gpu_throttled is None


@pytest.mark.parametrize(
    ("place", "known"),
    [(Place.HERE, True), (Place.CONTAINER, False), (Place.ELSEWHERE, False)],
)
def test_only_a_local_servers_processes_are_ours(place: Place, known: bool) -> None:
    with Sampler(lambda: {"m": BEFORE}, lambda: None, place, period_s=0.001) as sampler:
        wait_until(lambda: bool(sampler.between(0, time.time_ns())))
    first = sampler.between(0, time.time_ns())[0]
    assert (first.machine.ours_s is not None) is known
    # The load generator always is here; a remote server is not.
    assert (first.shared_cores is None) is (place is Place.ELSEWHERE)


def test_samples_nearest_to_the_window_are_used() -> None:
    taken: list[int] = []

    def snapshot() -> Mapping[str, StatisticsSnapshot]:
        taken.append(time.time_ns())
        more = StatisticsSnapshot(success_count=2 * len(taken))
        return {"m": StatisticsSnapshot(success_count=len(taken)), "step": more}

    with Sampler(snapshot, lambda: None, Place.HERE, period_s=0.001) as sampler:
        wait_until(lambda: len(taken) > 5)
    times = [sample.time_ns for sample in sampler.between(0, time.time_ns())]
    nearest = sampler.between(times[1] + 1, times[4] - 1)
    assert nearest[0].statistics["m"].success_count == 2
    assert nearest[-1].statistics["m"].success_count == 5
    statistics = server_statistics(nearest, ["m", "step"])
    assert {label: s.success_count for label, s in statistics.items()} == {"m": 3, "step": 6}


def test_a_server_that_is_gone_ends_the_sampling_only() -> None:
    def gone() -> Mapping[str, StatisticsSnapshot]:
        raise ServerGoneError("gone")

    with Sampler(gone, lambda: None, Place.HERE, period_s=0.001) as sampler:
        wait_until(lambda: not any(t.name == "sampler" for t in threading.enumerate()))
    assert sampler.between(0, 1) == ()


def test_defect_of_the_sampler_ends_only_the_sampling_and_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def defect() -> Metrics | None:
        raise OverflowError("cannot convert float infinity to integer")

    with Sampler(lambda: {"m": BEFORE}, defect, Place.ELSEWHERE, period_s=0.001):
        wait_until(lambda: bool(caplog.messages))
    (message,) = caplog.messages
    assert "float infinity" in message


def test_the_thread_ends_with_the_context() -> None:
    with pytest.raises(KeyError), Sampler(lambda: {"m": BEFORE}, lambda: None, Place.CONTAINER):
        raise KeyError
    assert not any(thread.name == "sampler" for thread in threading.enumerate())


ENDPOINTS = Endpoints("h:1", "g:1", "m:1")


def waiting(**counts: float) -> Metrics:
    name = "nv_inference_pending_request_count"
    return Metrics(tuple(MetricSample(name, {"model": m}, n) for m, n in counts.items()))


@pytest.fixture(autouse=True)
def _lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.health, "live", lambda _: True)
    monkeypatch.setattr(module, "REST_S", 0.02)


def test_an_ensemble_is_at_rest_when_its_steps_are() -> None:
    def scrape() -> Metrics:
        return waiting(nlp=0.0, tokenizer=0.0, bert=7.0)

    assert becomes_idle(scrape, ["nlp", "tokenizer"], ENDPOINTS)
    assert not becomes_idle(scrape, ["nlp", "tokenizer", "bert"], ENDPOINTS)
    assert not becomes_idle(lambda: None, ["nlp"], ENDPOINTS)


def test_immediate_stop_interrupts_waiting_for_an_idle_server() -> None:
    def stopped() -> Metrics:
        raise InterruptedRunError("interrupted")

    with pytest.raises(InterruptedRunError):
        becomes_idle(stopped, ["nlp"], ENDPOINTS)


def test_requests_that_wait_in_an_ensembles_steps_have_reached_it() -> None:
    machine = MachineReading(0.0, 0.0, 0.0, 0.0, None, 0.0, None)

    def sample(answered: int, **counts: float) -> Sample:
        counted = {"nlp": StatisticsSnapshot(success_count=answered)}
        return Sample(0, counted, waiting(**counts), machine)

    samples = [sample(100, nlp=0.0, bert=0.0), sample(140, nlp=0.0, bert=25.0)]
    assert received_count(samples, "nlp", ["nlp", "bert"]) == 65
    assert received_count(samples, "nlp", ["nlp"]) == 40
