from __future__ import annotations

import os
from collections import namedtuple
from types import SimpleNamespace

import psutil
import pytest

from tuner.load.machine import (
    MachineReading,
    busy_percent,
    other_percent,
    read_machine,
    stolen_percent,
)

Times = namedtuple("Times", "user system children_user children_system")


class FakeProcess:
    """A process of a tree; ``gone`` ends between being listed and being read."""

    def __init__(self, times: Times, children: tuple[FakeProcess, ...] = (), gone: bool = False):
        self._times, self._children, self._gone = times, children, gone

    def children(self, recursive: bool) -> list[FakeProcess]:
        assert recursive
        return [p for c in self._children for p in (c, *c.children(recursive=True))]

    def cpu_times(self) -> Times:
        if self._gone:
            raise psutil.NoSuchProcess(1)
        return self._times


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> FakeProcess:
    stub = FakeProcess(Times(10.0, 1.0, 0.0, 0.0))
    server = FakeProcess(Times(4.0, 2.0, 0.5, 0.5), (stub,))
    ended = FakeProcess(Times(99.0, 99.0, 0.0, 0.0), gone=True)
    root = FakeProcess(Times(1.0, 1.0, 20.0, 2.0), (server, ended))
    monkeypatch.setattr(psutil, "Process", lambda: root)
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
    return root


@pytest.mark.usefixtures("tree")
def test_the_whole_tree_counts_with_what_ended_in_it() -> None:
    found = read_machine(ours=True)
    assert found.ours_s == 24.0 + 7.0 + 11.0
    assert found.processes_s == 160.0  # no interrupts
    assert (found.total_s, found.idle_s, found.stolen_s) == (400.0, 220.0, 10.0)
    assert found.load_1m == 1.25


@pytest.mark.usefixtures("tree")
def test_ours_is_unknown_when_the_server_is_elsewhere() -> None:
    assert read_machine(ours=False).ours_s is None


def test_this_machine_can_be_read() -> None:
    before = read_machine(ours=True)
    after = read_machine(ours=True)
    assert before.ours_s is not None
    assert after.ours_s is not None
    assert 0.0 < before.ours_s <= after.ours_s
    assert 0.0 < before.processes_s < before.total_s


def reading(total: float, processes: float, ours: float | None = 0.0) -> MachineReading:
    return MachineReading(total, total - processes, processes, 0.0, ours, 0.0, None)


def test_shares_are_of_all_cores() -> None:
    before, after = reading(100.0, 10.0, 5.0), reading(120.0, 20.0, 11.0)
    assert busy_percent(before, after) == pytest.approx(50.0)
    assert other_percent(before, after) == pytest.approx(20.0)
    assert stolen_percent(before, after) == 0.0


def test_ticks_that_cross_are_no_negative_share() -> None:
    assert other_percent(reading(100.0, 10.0, 5.0), reading(101.0, 10.5, 5.6)) == 0.0


def test_no_time_passed_gives_nothing() -> None:
    assert busy_percent(reading(100.0, 10.0), reading(100.0, 10.0)) is None
