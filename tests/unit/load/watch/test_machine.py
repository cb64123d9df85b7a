from __future__ import annotations

import os
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from builders.measurements import latency_slo, synthetic_measurement

from tuner.load.validity import warnings_about
from tuner.load.watch.machine import (
    MachineReading,
    TunerProcesses,
    cpu_use,
    disturbances,
    quota_use,
    read_machine,
    taken_percent,
)
from tuner.machine import process
from tuner.machine.quota import Throttling
from tuner.measurement.host_use import HostUse
from tuner.measurement.measurement import Measurement
from tuner.sentences import sentence
from tuner.spec.slo import Slo

Times = namedtuple("Times", "user system children_user children_system")

ROOT, SERVER, STUB, SHELL = 100, 200, 150, 900


class FakeMachine:
    """Processes as (parent, CPU times); a stub may have a lower number than its parent."""

    def __init__(self) -> None:
        self.table = {
            1: (0, Times(99.0, 99.0, 0.0, 0.0)),
            ROOT: (1, Times(1.0, 1.0, 20.0, 2.0)),
            SERVER: (ROOT, Times(4.0, 2.0, 0.5, 0.5)),
            STUB: (SERVER, Times(10.0, 1.0, 0.0, 0.0)),
            SHELL: (1, Times(50.0, 50.0, 0.0, 0.0)),
        }
        self.pids: list[int] = []

    def process(self, pid: int = ROOT) -> SimpleNamespace:
        def parent() -> int:
            self.pids.append(pid)
            return self._row(pid)[0]

        return SimpleNamespace(
            ppid=parent,
            name=lambda: "tritonserver" if pid == SERVER else "python",
            cpu_times=lambda: self._row(pid)[1],
            num_threads=lambda: self._row(pid)[0] // 50,
            memory_info=lambda: SimpleNamespace(rss=1000 * self._row(pid)[0], shared=pid),
        )

    def _row(self, pid: int) -> tuple[int, Times]:
        if pid not in self.table:
            raise psutil.NoSuchProcess(pid)
        return self.table[pid]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    fake = FakeMachine()
    monkeypatch.setattr(psutil, "Process", fake.process)
    monkeypatch.setattr(psutil, "pids", lambda: list(fake.table))
    monkeypatch.setattr(os, "getpid", lambda: ROOT)
    now = SimpleNamespace(
        user=100.0,
        system=50.0,
        nice=10.0,
        idle=200.0,
        iowait=20.0,
        irq=1.0,
        softirq=9.0,
        steal=10.0,
    )
    monkeypatch.setattr(psutil, "cpu_times", lambda: now)
    monkeypatch.setattr(os, "getloadavg", lambda: (1.25, 0.0, 0.0))
    return fake


@pytest.mark.usefixtures("fake")
def test_cpu_time_covers_the_process_tree_with_ended_processes() -> None:
    reading_ = read_machine(TunerProcesses())
    assert reading_.ours_s == 24.0 + 7.0 + 11.0
    assert reading_.processes_s == 160.0  # no interrupts
    assert (reading_.total_s, reading_.idle_s, reading_.stolen_s) == (400.0, 220.0, 10.0)
    assert reading_.load_1m == 1.25


@pytest.mark.usefixtures("fake")
def test_memory_is_that_of_the_server_and_its_children_without_what_they_share() -> None:
    assert TunerProcesses().server_bytes() is None
    ours = TunerProcesses()
    ours.cpu_s()
    assert ours.server_bytes() == 1000 * (ROOT + SERVER) - (SERVER + STUB)


@pytest.mark.usefixtures("fake")
def test_threads_are_those_of_the_server_and_its_children() -> None:
    assert TunerProcesses().server_threads() is None
    ours = TunerProcesses()
    ours.cpu_s()
    assert ours.server_threads() == (ROOT + SERVER) // 50


def test_parents_are_read_of_new_processes_only(fake: FakeMachine) -> None:
    ours = TunerProcesses()
    ours.cpu_s()
    fake.pids.clear()
    assert ours.cpu_s() == 42.0
    assert fake.pids == []
    fake.table[300] = (SERVER, Times(1.0, 0.0, 0.0, 0.0))
    fake.table[301] = (SHELL, Times(5.0, 0.0, 0.0, 0.0))
    assert ours.cpu_s() == 43.0
    assert sorted(fake.pids) == [300, 301]


def test_a_process_that_ended_counts_no_more(fake: FakeMachine) -> None:
    ours = TunerProcesses()
    ours.cpu_s()
    del fake.table[STUB]
    assert ours.cpu_s() == 31.0
    fake.table[STUB] = (SHELL, Times(70.0, 0.0, 0.0, 0.0))  # its number is given out again
    assert ours.cpu_s() == 31.0


def test_a_process_that_ends_while_it_is_looked_at(
    fake: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "pids", lambda: [*fake.table, 777])
    assert TunerProcesses().cpu_s() == 42.0


@pytest.mark.usefixtures("fake")
def test_ours_is_unknown_when_the_server_is_elsewhere() -> None:
    assert read_machine(None).ours_s is None


CONTAINER, WORKER = 800, 801
ID = "3f1c" * 16


@pytest.mark.parametrize("group", [f"0::/system.slice/docker-{ID}.scope", f"1:cpu:/docker/{ID}"])
def test_the_processes_of_our_container_are_ours(
    group: str, fake: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.table[CONTAINER] = (1, Times(7.0, 1.0, 0.0, 0.0))
    fake.table[WORKER] = (CONTAINER, Times(2.0, 0.0, 0.0, 0.0))
    for pid in fake.table:
        (tmp_path / str(pid)).mkdir()
        mine = pid in (CONTAINER, WORKER)
        (tmp_path / str(pid) / "cgroup").write_text(group if mine else "0::/user.slice\n")
    monkeypatch.setattr(process, "_PROC", tmp_path)
    elsewhere = TunerProcesses(containers=True)
    assert elsewhere.cpu_s() is None  # none of ours: all others would seem to disturb
    with process.tracked_container(ID):
        assert TunerProcesses(containers=True).cpu_s() == 52.0
        assert TunerProcesses().cpu_s() == 42.0
    assert TunerProcesses(containers=True).cpu_s() is None


def test_an_engine_that_shows_no_processes_here_leaves_ours_unknown() -> None:
    with process.tracked_container(ID):
        assert read_machine(TunerProcesses(containers=True)).ours_s is None


def test_this_machine_can_be_read() -> None:
    ours = TunerProcesses()
    before, after = read_machine(ours), read_machine(ours)
    assert before.ours_s is not None
    assert after.ours_s is not None
    assert 0.0 < before.ours_s <= after.ours_s
    assert 0.0 < before.processes_s < before.total_s


def reading(total: float, processes: float, ours: float | None = 0.0) -> MachineReading:
    return MachineReading(total, total - processes, processes, 0.0, ours, 0.0, None)


def test_shares_are_of_all_cores() -> None:
    shares = cpu_use(reading(100.0, 10.0, 5.0), reading(120.0, 20.0, 11.0))
    assert list(shares.values()) == pytest.approx([50.0, 20.0, 0.0])


def test_ticks_that_cross_are_no_negative_share() -> None:
    shares = cpu_use(reading(100.0, 10.0, 5.0), reading(101.0, 10.5, 5.6))
    assert shares["other_cpu_percent"] == 0.0


def test_no_time_passed_gives_nothing() -> None:
    assert set(cpu_use(reading(100.0, 10.0), reading(100.0, 10.0)).values()) == {None}


TIGHT, SLOW = latency_slo(0.99, 0.04), latency_slo(0.95, 2.0)


def measured(**host: Any) -> Measurement:
    return replace(synthetic_measurement(), host=HostUse(**host))


@pytest.mark.parametrize(
    ("bound", "host", "said"),
    [
        (TIGHT, {}, []),
        (TIGHT, {"cpu_percent": 100.0, "load_1m": 40.0, "governor": "powersave"}, []),
        (TIGHT, {"other_cpu_percent": 5.0, "stalled_percent": 0.25}, []),
        (TIGHT, {"stolen_cpu_percent": 50.0}, []),
        (
            TIGHT,
            {"stalled_percent": 0.26},
            ["paused for 0.26% of the time (limit 0.25%), for 5 ms and more"],
        ),
        (TIGHT, {"stalled_percent": 0.2504}, ["0.2504% of the time (limit 0.25%)"]),
        (TIGHT, {"other_cpu_percent": 5.004}, ["took 5.004% of the machine's CPU"]),
        (SLOW, {"stalled_percent": 1.2}, []),
        (SLOW, {"stalled_percent": 1.3}, ["paused for 1.3% of the time (limit 1.25%), for 200 ms"]),
        (TIGHT, {"other_cpu_percent": 5.3}, ["Other processes took 5.3%"]),
        (TIGHT, {"other_cpu_percent": 5.04}, ["Other processes took 5.04%"]),
        (TIGHT, {"quota_cpus": 1.0, "throttled_percent": 0.0, "throttled_s": 0.0}, []),
        (
            TIGHT,
            {"quota_cpus": 1.5, "throttled_percent": 100.0, "throttled_s": 3.2},
            ["CPU quota of 1.5 CPUs was used up in 100% of its periods"],
        ),
        (  # the stalls are the quota's
            TIGHT,
            {"quota_cpus": 1.0, "throttled_percent": 40.0, "stalled_percent": 9.0},
            ["CPU quota of 1 CPUs was used up in 40%"],
        ),
        (TIGHT, {"other_cpu_percent": 48.6, "stalled_percent": 3.0}, ["3% of", "took 49%"]),
    ],
)
def test_stalls_are_limited_by_the_late_share_of_the_slo_and_others_by_a_fixed_share(
    bound: Slo, host: dict[str, Any], said: list[str]
) -> None:
    reasons = disturbances(measured(**host), bound)
    assert len(reasons) == len(said)
    assert all(words in sentence(d) for words, d in zip(said, reasons, strict=True))


def test_throttling_by_a_quota_is_counted_between_two_readings() -> None:
    before, after = (
        replace(reading(100.0, 10.0), throttling=Throttling(*counted))
        for counted in ((100, 7, 1.5), (110, 17, 4.0))
    )
    assert quota_use(before, after) == {"throttled_percent": 100.0, "throttled_s": 2.5}
    assert quota_use(before, before) == {}  # nothing ran
    assert quota_use(reading(100.0, 10.0), after) == {}


def test_gpu_heated_by_the_measured_load_is_reported_but_no_disturbance() -> None:
    hot = measured(gpu_throttled=True, gpu_clock_mhz=1200.0)
    assert disturbances(hot) == ()
    assert {"clock_mhz": 1200.0} in [warning.facts for warning in warnings_about(hot)]


def test_taken_cpu_adds_up_other_processes_and_stalls() -> None:
    assert taken_percent(measured(other_cpu_percent=13.0, stalled_percent=2.0)) == 15.0
    assert taken_percent(measured()) == 0.0


def test_load_on_other_cpus_is_ignored_where_the_server_has_separate_ones(
    fake: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = [SimpleNamespace(user=10.0 * (cpu + 1), system=1.0, idle=5.0) for cpu in range(3)]
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu=False: each if percpu else None)
    reading_ = read_machine(TunerProcesses(), cpus={0, 2})
    assert (reading_.processes_s, reading_.idle_s, reading_.total_s) == (42.0, 10.0, 52.0)
