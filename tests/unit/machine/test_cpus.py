"""The CPUs of server and load generator, and whether they share them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.machine import cpus
from tuner.machine.cpus import (
    ANY,
    LITTLE,
    Cores,
    Sharing,
    core_count,
    decide_sharing,
    left_its_cpus,
    may_be_first,
    share_cores,
)
from tuner.machine.process import Priority
from tuner.machine.quota import Quota
from tuner.sentences import sentence
from tuner.spec.fields import Cpus

APART, TOGETHER = Sharing.APART, Sharing.TOGETHER


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight CPUs, of which n and n + 4 are threads of one core, and no quota."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(cpus, "_SIBLINGS", str(tmp_path / "{}"))
    monkeypatch.setattr(cpus, "read_quota", lambda: None)
    for cpu in range(8):
        (tmp_path / str(cpu)).write_text(f"{cpu % 4},{cpu % 4 + 4}\n")


@pytest.mark.parametrize(
    ("cores", "priority"),
    [
        (Cores(), Priority.REAL_TIME),
        (Cores((0, 1), (2,), of=3), Priority.NICE),
        (Cores((0, 1), (1,)), Priority.REAL_TIME),
    ],
)
def test_load_generator_has_real_time_priority_only_on_shared_cpus(
    cores: Cores, priority: Priority
) -> None:
    assert cores.load_priority is priority


@pytest.mark.parametrize(
    ("load_cores", "may_be_first", "leaves", "decided"),
    [
        (None, True, False, None),
        (0.02, True, False, TOGETHER),
        (LITTLE - 0.001, True, False, TOGETHER),
        (LITTLE, True, False, APART),
        (1.4, True, False, APART),
        (None, False, False, APART),
        (0.02, False, False, APART),
        (None, True, True, TOGETHER),
        (1.4, True, True, TOGETHER),
        (1.4, False, True, TOGETHER),
    ],
)
def test_light_load_shares_cpus_first_and_heavy_load_gets_separate_ones(
    load_cores: float | None, may_be_first: bool, leaves: bool, decided: Sharing | None
) -> None:
    sharing = decide_sharing(load_cores, may_be_first=may_be_first, needs_all_cpus=leaves)
    assert sharing is decided


@pytest.mark.parametrize(
    ("server", "load", "sharing", "expected"),
    [
        (None, None, APART, Cores((0, 1, 2, 4, 5, 6), (3, 7), of=8)),
        (None, None, TOGETHER, ANY),
        (None, None, None, ANY),
        ((0, 1), None, TOGETHER, Cores((0, 1), (2, 3, 4, 5, 6, 7))),
        (None, (0,), APART, Cores((1, 2, 3, 4, 5, 6, 7), (0,), of=8)),
        (None, (0,), TOGETHER, Cores((), (0,))),
        ((0, 1), (1, 2), APART, Cores((0, 1), (1, 2))),
        ("all", None, APART, ANY),
        ("all", (3,), APART, Cores((), (3,))),
        (None, "all", APART, ANY),
        ((0, 1), "all", APART, Cores((0, 1), ())),
    ],
)
def test_cpus_of_the_spec_stand_and_the_others_are_as_decided(
    server: Cpus, load: Cpus, sharing: Sharing | None, expected: Cores
) -> None:
    assert share_cores(server, load, sharing) == expected


def test_cpus_are_apart_only_where_neither_can_take_the_others() -> None:
    assert Cores((0, 1), (2,)).sharing is APART
    assert Cores((0, 1), (1, 2)).sharing is TOGETHER
    assert Cores((), (3,)).sharing is TOGETHER


@pytest.mark.parametrize(
    ("usable", "expected"),
    [({5}, ANY), ({0, 4}, Cores((0,), (4,), of=2)), ({1, 3}, Cores((1,), (3,), of=2))],
)
def test_few_cpus_are_split_by_thread_and_one_is_shared(
    usable: set[int], expected: Cores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: usable)
    assert share_cores(None, None, APART) == expected


@pytest.mark.parametrize(
    ("quota", "count", "expected"),
    [(1.0, 1, ANY), (2.5, 2, Cores((0,), (1,), of=2)), (4.0, 4, Cores((0, 1, 2), (3,), of=4))],
)
def test_quota_counts_as_the_machines_cpus(
    quota: float, count: int, expected: Cores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpus, "read_quota", lambda: Quota(quota, Path()))
    assert core_count() == count
    assert core_count([2]) == 1
    assert share_cores(None, None, APART) == expected


def test_production_server_gets_all_its_cpus_and_cpus_of_the_spec_stay() -> None:
    assert Cores((0, 1, 2), (3,), of=4).in_production == ()
    assert Cores((0, 1, 2), (3,)).in_production == (0, 1, 2)


def test_verdict_says_where_the_server_had_fewer_cpus_than_in_production() -> None:
    split = Cores((0, 1, 2, 4, 5, 6), (3, 7), of=8)
    assert split.fewer
    assert "6 of 8 CPUs" in sentence(split.shortage)
    assert not Cores((0, 1), (2,)).fewer  # the spec says so
    assert not ANY.fewer


def test_cores_survive_json() -> None:
    for cores in (ANY, Cores((0,), (1,), of=2)):
        assert Cores.from_json(cores.to_json()) == cores


def test_priority_is_tried_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[Any] = []
    monkeypatch.setattr("os.sched_getscheduler", lambda _: 0)
    monkeypatch.setattr("os.sched_getparam", lambda _: "nothing")
    monkeypatch.setattr("os.sched_setscheduler", lambda *given: set_to.append(given[1]))
    assert may_be_first()
    assert len(set_to) == 2
    assert set_to[1] == 0

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("os.sched_setscheduler", refuse)
    assert not may_be_first()


def test_threads_that_were_put_back_are_counted_in_a_sentence() -> None:
    assert left_its_cpus(1, (0,)).startswith("1 thread of the server had left CPU 0 and was moved")
    assert left_its_cpus(2, (0, 1)).startswith("2 threads of the server had left CPUs 0-1 and were")
