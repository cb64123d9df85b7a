"""`tune run --on ray` as a process whose benches are emulated, and what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
PATHS = os.pathsep.join([str(TESTS), str(TESTS.parent)])
PROGRAM = "from builders.fleets import main; main()"


def start(
    place: Path, *arguments: str, pause_s: float = 0.01, **variables: str
) -> subprocess.Popen[str]:
    # So long a name that Ray cannot put its sockets there.
    temporary = place / "tmp"
    temporary.mkdir(exist_ok=True)
    settings = {
        "PYTHONPATH": PATHS,
        "TMPDIR": str(temporary),
        "XDG_STATE_HOME": str(place / "state"),
        **variables,
    }
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "run", *arguments, "--on", "ray", "--progress", "plain"],
        cwd=place,
        env={**os.environ, **settings, "EMULATED_PAUSE_S": str(pause_s)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(place: Path) -> Iterator[tuple[int, str]]:
    """Those that have this place in their environment, with their command lines."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if str(place).encode() in (entry / "environ").read_bytes():
                    yield int(entry.name), (entry / "cmdline").read_text()
            except OSError:
                continue


#: Of a killed Ray: they end by themselves, about a minute later.
AGENTS = "ray::DashboardAgent", "ray::RuntimeEnvAgent"


def left_over(place: Path) -> list[str]:
    return [command for _, command in processes_of(place) if not command.startswith(AGENTS)]


def benches_of(place: Path) -> list[int]:
    return [pid for pid, command in processes_of(place) if command.startswith("ray::RayBench")]
