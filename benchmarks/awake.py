"""Keeps the CPUs of a virtual machine from halting, so that its host cannot delay each wake-up.

A server that answers thousands of requests a second is woken as often. Where a virtual CPU halts
in between, it has to wait for the host to run it again; on a busy host that is most of the steal
time that such a load meets, while a program that never sleeps meets next to none. A loop at idle
priority on every CPU keeps them running: whatever else can run goes first. The loops cost other
work on the same physical core a part of its speed, so that capacities measured beside them are
lower: compare them only with each other.

    python benchmarks/awake.py check my-model.yaml     # `tune check my-model.yaml` beside them

The loops are children of the process that measures, so that it does not count them as the work of
others.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def awake() -> Iterator[None]:
    """A loop for every CPU that this process may use; they end with it."""
    spawn = multiprocessing.get_context("spawn")
    loops = [
        spawn.Process(target=_loop, args=(cpu, os.getpid()), daemon=True)
        for cpu in sorted(os.sched_getaffinity(0))
    ]
    try:
        for loop in loops:
            loop.start()
        yield
    finally:
        for loop in loops:
            loop.terminate()
            loop.join()


def _loop(cpu: int, parent: int) -> None:
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while os.getppid() == parent:
        for _ in range(100_000):
            pass


if __name__ == "__main__":
    from tuner.cli import main

    with awake():
        main()
