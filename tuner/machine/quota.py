"""CPU quotas of control groups (versions 1 and 2): how much CPU time this process may use.

A quota applies to a group and its descendants, so the smallest quota between the process and the
root counts. In a container, the root is that of the container's view. The files are documented in
the kernel's Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst.
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
    """How often a quota stopped a group since the group was created.

    Attributes:
        periods: Enforcement periods in which the group ran.
        throttled: Periods in which the quota was used up, so that threads had to wait.
        time_s: Waiting time, summed over the CPUs of the group.
    """

    periods: int
    throttled: int
    time_s: float


@dataclass(frozen=True)
class Quota:
    """The smallest CPU quota between a process and the root.

    Attributes:
        cpus: CPU seconds per second; may be fractional.
    """

    cpus: float
    directory: Path

    @property
    def full_cpus(self) -> int:
        """Number of threads that can run without being throttled; at least 1."""
        return max(math.floor(self.cpus), 1)

    def throttling(self) -> Throttling | None:
        """The current counters; None if the group has none, or no longer exists."""
        text = text_of(self.directory / "cpu.stat")
        return None if text is None else parse_throttling(text)


def read_quota(process: Path = _SELF) -> Quota | None:
    """The quota of a process; ``process``: its directory in /proc. None: no quota."""
    groups, mounts = text_of(process / "cgroup"), text_of(process / "mountinfo")
    if groups is None or mounts is None:
        return None
    limits = [
        Quota(cpus, directory)
        for directory in group_directories(groups, mounts)
        if (cpus := _limit(directory)) is not None
    ]
    return min(limits, key=lambda quota: quota.cpus, default=None)


def group_directories(groups: str, mounts: str) -> Iterator[Path]:
    """The directories of a process's CPU control groups, children before parents.

    Args:
        groups: Content of /proc/PID/cgroup.
        mounts: Content of /proc/PID/mountinfo, which has the mount points of the hierarchies.
    """
    for line in groups.splitlines():
        _, controllers, group = line.split(":", 2)
        for controller in {_V1, _V2} & {*controllers.split(",")}:
            for root, place in _mounted(mounts, controller):
                inside = _inside(group, root)
                yield from (place / part for part in (inside, *inside.parents))


def _inside(group: str, root: str) -> PurePosixPath:
    """The group's path relative to the mounted root; empty if the group is outside the root."""
    path = PurePosixPath(group)
    if ".." in path.parts or not path.is_relative_to(root):
        return PurePosixPath()
    return path.relative_to(root)


def _mounted(mounts: str, controller: str) -> Iterator[tuple[str, Path]]:
    """The roots and mount points of a controller's hierarchy."""
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
    if (text := text_of(directory / "cpu.max")) is not None:
        return parse_limit(*text.split())
    quota, period = (text_of(directory / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return None if quota is None or period is None else parse_limit(quota, period)


def parse_limit(quota: str, period: str) -> float | None:
    """The quota in CPUs, from quota and period in microseconds; None: no limit (``max`` or -1)."""
    with suppress(ValueError):
        if int(quota) > 0 and int(period) > 0:
            return int(quota) / int(period)
    return None


def parse_throttling(text: str) -> Throttling | None:
    """Parses cpu.stat: ``throttled_usec`` in version 2, ``throttled_time`` (ns) in version 1."""
    fields = dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line)
    with suppress(KeyError, ValueError):
        microseconds = fields.get("throttled_usec")
        time_s = (
            int(fields["throttled_time"]) / 1e9 if not microseconds else int(microseconds) / 1e6
        )
        return Throttling(int(fields["nr_periods"]), int(fields["nr_throttled"]), time_s)
    return None


def text_of(path: Path) -> str | None:
    """The content of a file of the kernel; None if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return None
