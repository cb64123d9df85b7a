"""`tune --help` and `import tuner` stay under half a second: the best of five says so."""

from __future__ import annotations

import subprocess
import sys
import time

LIMIT_S = 0.5


def best_of_five(argv: list[str]) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> int:
    slow = 0
    for argv in (
        [sys.executable, "-c", "import tuner"],
        [
            sys.executable,
            "-c",
            "import sys; from tuner.cli import main; sys.argv = ['tune', '--help']; main()",
        ],
    ):
        seconds = best_of_five(argv)
        print(f"{seconds:.3f} s  {argv[-1]}")
        slow += seconds > LIMIT_S
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
