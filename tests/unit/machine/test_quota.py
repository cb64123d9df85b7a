"""CPU quotas, from the files of control groups of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.machine.quota import (
    Quota,
    Throttling,
    group_directories,
    parse_limit,
    parse_throttling,
    read_quota,
)

V2_STAT = """usage_usec 17283
user_usec 9000
system_usec 8283
nr_periods 10
nr_throttled 4
throttled_usec 250000
nr_bursts 0
burst_usec 0"""
V1_STAT = "nr_periods 10\nnr_throttled 4\nthrottled_time 250000000\nnr_bursts 0\nburst_time 0"


@pytest.mark.parametrize(
    ("quota", "period", "cpus"),
    [
        ("max", "100000", None),
        ("-1", "100000", None),
        ("100000", "100000", 1.0),
        ("250000", "100000", 2.5),
        ("50000", "100000", 0.5),
        ("0", "100000", None),
        ("x", "100000", None),
    ],
)
def test_limit_is_quota_per_period(quota: str, period: str, cpus: float | None) -> None:
    assert parse_limit(quota, period) == cpus


@pytest.mark.parametrize("text", [V1_STAT, V2_STAT])
def test_throttling_of_both_versions_is_read_alike(text: str) -> None:
    assert parse_throttling(text) == Throttling(10, 4, 0.25)


@pytest.mark.parametrize("text", ["", "usage_usec 5\nuser_usec 3", "nr_periods x\nnr_throttled 1"])
def test_group_that_counts_no_throttling_has_none(text: str) -> None:
    assert parse_throttling(text) is None


@pytest.mark.parametrize(("cpus", "expected"), [(0.5, 1), (1.0, 1), (2.5, 2), (8.0, 8)])
def test_integer_cpus_run_without_throttling(cpus: float, expected: int) -> None:
    assert Quota(cpus, Path()).full_cpus == expected


class Machine:
    """A /proc/PID and control groups in a directory."""

    def __init__(self, root: Path) -> None:
        self.root, self.process = root, root / "proc"
        self.process.mkdir()
        self._mounts: list[str] = []

    def mount(self, kind: str, options: str, root: str = "/", place: str = "cpu") -> None:
        where = str(self.root / place).replace(" ", r"\040")
        self._mounts.append(f"31 23 0:28 {root} {where} rw,nosuid - {kind} {kind} {options}")
        (self.process / "mountinfo").write_text("\n".join(self._mounts) + "\n")

    def belongs(self, *groups: str) -> Path:
        (self.process / "cgroup").write_text("\n".join(groups) + "\n")
        return self.process

    def group(self, path: str, **files: str) -> Path:
        directory = self.root / path
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name.replace("__", ".")).write_text(f"{text}\n")
        return directory


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_smallest_limit_on_the_way_to_the_root_counts_in_version_2(machine: Machine) -> None:
    machine.mount("cgroup2", "rw,nsdelegate")
    machine.group("cpu", cpu__stat=V2_STAT)
    slice_ = machine.group("cpu/user.slice", cpu__max="150000 100000", cpu__stat=V2_STAT)
    machine.group("cpu/user.slice/a", cpu__max="400000 100000")
    machine.group("cpu/user.slice/a/b", cpu__max="max 100000")
    quota = read_quota(machine.belongs("0::/user.slice/a/b"))
    assert quota == Quota(1.5, slice_)
    assert quota.throttling() == Throttling(10, 4, 0.25)


def test_smallest_limit_on_the_way_to_the_root_counts_in_version_1(machine: Machine) -> None:
    machine.mount("cgroup", "rw,memory", place="memory")
    machine.mount("cgroup", "rw,cpu,cpuacct")
    unlimited = {"cpu__cfs_quota_us": "-1", "cpu__cfs_period_us": "100000"}
    machine.group("cpu", **unlimited)
    machine.group("cpu/docker", cpu__cfs_quota_us="300000", cpu__cfs_period_us="100000")
    inner = machine.group("cpu/docker/c", cpu__cfs_quota_us="25000", cpu__cfs_period_us="50000")
    process = machine.belongs("5:memory:/x", "3:cpu,cpuacct:/docker/c", "0::/")
    assert read_quota(process) == Quota(0.5, inner)


def test_quota_of_a_container_ends_at_the_root_of_its_view(machine: Machine) -> None:
    machine.mount("cgroup", "rw,cpu", root="/docker/c")
    machine.mount("cgroup2", "rw", place="unified")
    group = machine.group("cpu", cpu__cfs_quota_us="200000", cpu__cfs_period_us="100000")
    assert read_quota(machine.belongs("3:cpu:/docker/c", "0::/docker/c")) == Quota(2.0, group)


def test_group_outside_of_the_view_is_taken_for_the_mounted_one(machine: Machine) -> None:
    machine.mount("cgroup2", "rw")
    group = machine.group("cpu", cpu__max="100000 100000")
    assert read_quota(machine.belongs("0::/../../other")) == Quota(1.0, group)


def test_no_limit_is_none(machine: Machine) -> None:
    machine.mount("cgroup2", "rw")
    machine.group("cpu", cpu__max="max 100000")
    assert read_quota(machine.belongs("0::/")) is None
    assert read_quota(machine.root / "gone") is None


def test_mount_point_with_a_space_is_read(machine: Machine) -> None:
    machine.mount("cgroup2", "rw", place="my groups")
    group = machine.group("my groups", cpu__max="100000 100000")
    assert read_quota(machine.belongs("0::/")) == Quota(1.0, group)


def test_groups_are_in_order_from_the_inner_one_outwards() -> None:
    mounts = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
    directories = [*map(str, group_directories("0::/a/b", mounts))]
    assert directories == ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]
