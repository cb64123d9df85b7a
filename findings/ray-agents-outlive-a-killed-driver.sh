#!/usr/bin/env bash
# ray 2.60.0: after the driver that started a local Ray is killed (SIGKILL), its raylet, its GCS server and
# its workers end within seconds, but the two agents of the node stay for about a minute more. Who waits
# for "no process of Ray is left" waits for them.
# Seen: 20 s after the kill ray::DashboardAgent and ray::RuntimeEnvAgent run, and nothing else of Ray;
# within 120 s both are gone.
. "$(dirname "$0")/common.sh"
install ray==2.60.0
export HOME="$tmp" RAY_USAGE_STATS_ENABLED=0
"$tmp/venv/bin/python" - <<'PYTHON' || fail "the agents end with the rest, or stay"
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

DRIVER = """
import os, signal, sys, time, ray
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
time.sleep(3)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


def below(parent: int) -> set[int]:
    """Processes that a process started, and theirs."""
    tree: dict[int, set[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            above = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        tree.setdefault(above, set()).add(int(entry.name))
    found, rest = set(), [parent]
    while rest:
        new = tree.get(rest.pop(), set())
        found |= new
        rest += new
    return found


def alive(pids: set[int]) -> list[str]:
    names = []
    for pid in pids:
        try:
            names.append(Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0])
        except OSError:
            continue
    return sorted(name for name in names if name)


with subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as driver:
    time.sleep(15)
    pids = below(driver.pid)
    print("while it runs:", ", ".join(Path(name).name for name in alive(pids)))
    driver.stdin.write(b"\n")
    driver.stdin.flush()
    ended = driver.wait()
begin = time.monotonic()
time.sleep(20)
left = alive(pids)
print(f"the driver ended with {ended}; 20 s later: {', '.join(left)}")
assert ended == -signal.SIGKILL
assert left == ["ray::DashboardAgent", "ray::RuntimeEnvAgent"]
while alive(pids) and time.monotonic() - begin < 120:
    time.sleep(1)
print("all gone within 120 s:", not alive(pids))
assert not alive(pids)
PYTHON
echo "AS SEEN: two agents of Ray outlive a killed driver"
