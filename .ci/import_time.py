"""The command line costs a quarter of a second of CPU time: the least of five says so."""

from __future__ import annotations

import os
import subprocess
import sys

LIMIT_S = 0.25
HELP = "import sys; from tuner.cli import main; sys.argv = ['tune', '--help']; main()"


def cpu_s(code: str) -> float:
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, code
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    slow = 0
    for code in ("import tuner.cli", HELP):
        least_s = min(cpu_s(code) for _ in range(5))
        print(f"{least_s:.3f} s  {code}")
        slow += least_s > LIMIT_S
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
