"""What the live view of `tune run` costs while it shares the machine with the load.

A made-up run (`live_view.py`) is shown by the product's own view on a pseudo-terminal, in a process
of its own; its CPU time over the run is printed as a share of one core. Exits with 1 above 1 %.

python benchmarks/progress_cost.py --seconds 20
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

RUN = Path(__file__).with_name("live_view.py")
MOST = 0.01  # of one core
ROWS, COLUMNS = 40, 120


@contextlib.contextmanager
def terminal() -> Iterator[tuple[int, list[int]]]:
    """The end that a program writes to, and the bytes read from it so far."""
    screen, program = os.openpty()
    read: list[int] = []
    try:
        termios.tcsetwinsize(program, (ROWS, COLUMNS))
        reader = threading.Thread(target=_drain, args=(screen, read), daemon=True)
        reader.start()
        yield program, read
    finally:
        os.close(program)
        reader.join()
        os.close(screen)


def _drain(screen: int, read: list[int]) -> None:
    with contextlib.suppress(OSError):  # the last writer is gone
        while data := os.read(screen, 65536):
            read.append(len(data))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    seconds = parser.parse_args().seconds
    command = [sys.executable, str(RUN), "--usage", "--seconds", str(seconds)]
    environment = {**os.environ, "TERM": "xterm-256color"}
    with terminal() as (program, read):
        ended = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=program, env=environment, check=True
        )
    used = json.loads(ended.stdout)
    share = used["cpu_s"] / used["wall_s"]
    print(
        f"{used['cpu_s'] * 1000:.0f} ms of CPU in {used['wall_s']:.1f} s: {share:.2%} of one core; "
        f"{sum(read):,} bytes to the terminal"
    )
    return 0 if share < MOST else 1


if __name__ == "__main__":
    sys.exit(main())
