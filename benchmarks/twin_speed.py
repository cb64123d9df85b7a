"""How many requests a second the twin simulates on one core; prints the median of five runs.

python benchmarks/twin_speed.py
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from tuner.twin.simulator import simulate
from tuner.twin.system import Scheduler, Service, Traffic, Way

REQUESTS = 1_000_000
SERVICE = Service(1e-3, 5e-5, 4e-3, 2e-4, spread=0.05)
WAY = Way(3e-4, 2e-4, handoff_s=6e-5)
CASES = {
    "no batching, 1 instance": (Scheduler(batching=False), 130.0, SERVICE, WAY),
    "delay 0, 2 instances": (Scheduler(2, 16), 1400.0, SERVICE, WAY),
    "delay 2 ms, preferred 8": (
        Scheduler(2, 16, preferred_batch_sizes=(8,), max_queue_delay_s=2e-3),
        1400.0,
        SERVICE,
        WAY,
    ),
    "with responses and front on 2 cores": (
        Scheduler(2, 16),
        1400.0,
        Service(1e-3, 5e-5, 4e-3, 2e-4, 2e-5, spread=0.05),
        Way(3e-4, 2e-4, front_s=5e-5, cores=2.0, handoff_s=6e-5),
    ),
}


def requests_per_s(scheduler: Scheduler, rate: float, service: Service, way: Way) -> float:
    """Simulated per second of one core's time."""
    end_s = REQUESTS / rate
    due_s = np.sort(np.random.default_rng(1).uniform(0.0, end_s, REQUESTS))
    traffic = Traffic((0.1, end_s - 0.1), end_s, due_s)
    begin = time.process_time()
    simulate(scheduler, service, way, traffic)
    return REQUESTS / (time.process_time() - begin)


def main() -> None:
    warm = next(iter(CASES.values()))
    requests_per_s(*warm)  # compiles
    for name, case in CASES.items():
        speeds = [requests_per_s(*case) for _ in range(5)]
        print(f"{name:>36}: {statistics.median(speeds) / 1e6:.2f} million requests/s")


if __name__ == "__main__":
    main()
