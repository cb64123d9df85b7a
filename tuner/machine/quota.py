"""CPU quotas of control groups, version 1 and 2: how much CPU time this process may use.

A quota applies to a group and to all groups in it, so that the smallest on the way to the root
counts. In a container the way ends where the container's own view of the groups does.
Files: the kernel's Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_SELF = Path("/proc/self")
_V1, _V2 = "cpu", ""  # the controller as /proc/PID/cgroup names it
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Throttling:
    """What a quota has cost a group since the group was made.

    Attributes:
        periods: Enforcement periods in which the group ran.
        throttled: Periods in which the quota was used up, so that threads had to wait.
        time_s: How long each CPU of the group had to wait, added up.
    """

    periods: int
    throttled: int
    time_s: float


@dataclass(frozen=True)
class Quota:
    """The smallest CPU limit on the way to the root.

    Attributes:
        cpus: CPU seconds per second, perhaps a fraction.
        directory: Of the group that has the limit.
    """

    cpus: float
    directory: Path

    @property
    def full_cpus(self) -> int:
        """Threads that can run all the time: one more would be throttled."""
        return max(math.floor(self.cpus), 1)

    def throttling(self) -> Throttling | None:
        """Read now; None where the group does not count it, or is gone."""
        text = _read(self.directory / "cpu.stat")
        return None if text is None else parse_throttling(text)


def read_quota(process: Path = _SELF) -> Quota | None:
    """The quota of a process, by its directory in /proc; None where there is none."""
    groups, mounts = _read(process / "cgroup"), _read(process / "mountinfo")
    if groups is None or mounts is None:
        return None
    limits = [
        Quota(cpus, directory)
        for directory in group_directories(groups, mounts)
        if (cpus := _limit(directory)) is not None
    ]
    return min(limits, key=lambda quota: quota.cpus, default=None)


def group_directories(groups: str, mounts: str) -> Iterator[Path]:
    """The CPU groups of a process, each before the one around it.

    Args:
        groups: /proc/PID/cgroup.
        mounts: /proc/PID/mountinfo, by which each hierarchy's place is known.
    """
    for line in groups.splitlines():
        _, controllers, group = line.split(":", 2)
        for controller in {_V1, _V2} & {*controllers.split(",")}:
            for root, place in _mounted(mounts, controller):
                inside = _inside(group, root)
                yield from (place / part for part in (inside, *inside.parents))


def _inside(group: str, root: str) -> PurePosixPath:
    """The group's path below the mounted part of its hierarchy; that part's own where it is not."""
    path = PurePosixPath(group)
    if ".." in path.parts or not path.is_relative_to(root):
        return PurePosixPath()
    return path.relative_to(root)


def _mounted(mounts: str, controller: str) -> Iterator[tuple[str, Path]]:
    """Which part of a controller's hierarchy is mounted, and where."""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, *_, options = after.split(" ")
        matches = kind == "cgroup2" if controller == _V2 else kind == "cgroup"
        if matches and (controller == _V2 or controller in options.split(",")):
            root, place = before.split(" ")[3:5]
            yield _unescaped(root), Path(_unescaped(place))


def _unescaped(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def _limit(directory: Path) -> float | None:
    if (text := _read(directory / "cpu.max")) is not None:
        return parse_limit(*text.split())
    quota, period = (_read(directory / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return None if quota is None or period is None else parse_limit(quota, period)


def parse_limit(quota: str, period: str) -> float | None:
    """CPUs by the two numbers, in microseconds; None without a limit (``max``, or -1)."""
    with suppress(ValueError):
        if int(quota) > 0 and int(period) > 0:
            return int(quota) / int(period)
    return None


def parse_throttling(text: str) -> Throttling | None:
    """Reads cpu.stat: ``throttled_usec`` of version 2, ``throttled_time`` (ns) of version 1."""
    fields = dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line)
    with suppress(KeyError, ValueError):
        microseconds = fields.get("throttled_usec")
        time_s = (
            int(fields["throttled_time"]) / 1e9 if not microseconds else int(microseconds) / 1e6
        )
        return Throttling(int(fields["nr_periods"]), int(fields["nr_throttled"]), time_s)
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
