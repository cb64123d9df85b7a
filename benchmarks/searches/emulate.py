"""Computes the table ``emulated-gpu``: no server, no GPU, a queue with the batch times of one.

    python benchmarks/searches/emulate.py

On a GPU the time of a batch is no straight line in its size. Here small batches cost the launch of
their kernels, whatever their size; larger ones cost as much as the tile that they fill up, of 16,
32 or 64; and two batches run at once, each the slower, the more of the device they fill. The
scheduler is Triton's dynamic batcher (`GetDynamicBatch`), without preparing batches for busy
instances. Windows, percentiles and the choice of loads are those of a recorded table.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import recorded_table as tables
from record import Grid, recorded
from recorded_grid import in_order

from tuner.load.latency import AnsweredRequests, figures_of, observe_open
from tuner.load.traffic.arrivals import arrivals_of
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement, ServerStatistics
from tuner.measurement.window import Window, window_for
from tuner.prepare.job import Job, Request, prepare
from tuner.reason import Reason
from tuner.score.point import Point, judge_point
from tuner.space.candidate import Candidate

NAME = "emulated-gpu"
#: Milliseconds on the device of a batch up to this size, and by how much it slows beside another.
TILES = ((8, 3.0, 1.1), (16, 3.6, 1.5), (32, 6.0, 1.9), (64, 11.5, 2.0))
AT_ONCE = 2
#: Milliseconds that the host spends on a batch and on each request of it, in each instance; and
#: what client and network add to a request.
HOST_MS, HOST_EACH_MS, WAY_MS = 0.4, 0.01, 0.3
#: Standard deviations of a server's and of a batch's times.
SERVERS, BATCHES = 0.01, 0.02
#: How many configs, drawn by chance, are measured twice more: the noise of the table.
REPEATED, REPEATS = 24, 2

Times = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Served:
    """What the scheduler knows of a config."""

    instances: int
    most: int
    preferred: tuple[int, ...]
    delay_s: float

    @classmethod
    def of(cls, fields: Any) -> Served:
        most = int(fields["max_batch_size"]) if fields.get("dynamic_batching") else 1
        sizes = fields.get("dynamic_batching.preferred_batch_size") or (most,)
        delay_us = fields.get("dynamic_batching.max_queue_delay_microseconds") or 0
        return cls(int(fields["instance_group.count"]), most, tuple(sizes), delay_us / 1e6)

    def batch(self, waiting: int, waited_s: float) -> int:
        """How many to execute now; 0: wait for more."""
        pending = min(waiting, self.most)
        exceeded = 0.0 < self.delay_s <= waited_s
        best = max((n for n in self.preferred if n <= pending), default=0)
        if best and not exceeded:
            return best
        return pending if exceeded or not self.delay_s or pending == self.most else 0


class Queue:
    """One server under one load; times in seconds."""

    def __init__(self, served: Served, due_s: Times, luck: float, chance: random.Random) -> None:
        self.served, self.due_s = served, due_s.tolist()
        self.luck, self.chance = luck, chance
        self.answered_s = np.zeros_like(due_s)
        #: End, size and seconds of each batch, as Triton counts them: with the wait for the device.
        self.batches: list[tuple[float, int, float]] = []
        self._events: list[tuple[float, int, str, Any]] = []
        self._idle, self._running, self._number = served.instances, 0, 0
        self._waiting: deque[int] = deque()
        self._ready: deque[tuple[float, list[int]]] = deque()

    def run(self) -> None:
        arrived = 0
        while arrived < len(self.due_s) or self._events:
            if arrived < len(self.due_s) and (
                not self._events or self.due_s[arrived] <= self._events[0][0]
            ):
                now = self.due_s[arrived]
                self._waiting.append(arrived)
                arrived += 1
            else:
                now, _, kind, batch = heappop(self._events)
                if kind == "ready":
                    self._ready.append(batch)
                elif kind == "done":
                    self._end(now, batch)
            while self._ready and self._running < AT_ONCE:
                self._start(now, self._ready.popleft())
            self._dispatch(now)

    def _dispatch(self, now: float) -> None:
        while self._idle and self._waiting:
            since = self.due_s[self._waiting[0]]
            size = self.served.batch(len(self._waiting), now - since + 1e-9)
            if not size:
                self._at(since + self.served.delay_s, "delay", None)
                return
            self._idle -= 1
            batch = [self._waiting.popleft() for _ in range(size)]
            host_s = (HOST_MS + HOST_EACH_MS * size) / 1e3
            self._at(now + host_s * self.luck, "ready", (now, batch))

    def _start(self, now: float, batch: tuple[float, list[int]]) -> None:
        took_ms, crowded = next(rest for most, *rest in TILES if len(batch[1]) <= most)
        took_ms *= crowded if self._running else 1.0
        self._running += 1
        self._at(now + took_ms / 1e3 * self.luck * self.chance.gauss(1.0, BATCHES), "done", batch)

    def _end(self, now: float, batch: tuple[float, list[int]]) -> None:
        began, requests = batch
        self.answered_s[requests] = now + WAY_MS / 1e3
        self.batches.append((now, len(requests), now - began))
        self._running -= 1
        self._idle += 1

    def _at(self, when: float, kind: str, batch: Any) -> None:
        self._number += 1
        heappush(self._events, (when, self._number, kind, batch))


class EmulatedBench:
    """The part of `tuner.meter.protocol.Bench` that recording a table needs."""

    def __init__(self, job: Job) -> None:
        self.job = job
        (self.label,) = job.served.models
        self.deployed = 0

    def deploy(
        self, candidate: Candidate, *, fresh: bool = False, in_production: bool = False
    ) -> Any:
        self.deployed += 1
        self.served = Served.of(candidate.of(self.label))
        self.luck = random.Random(f"{tables.luck_of(candidate)}/{self.deployed}").gauss(
            1.0, SERVERS
        )
        return SimpleNamespace(kind=SimpleNamespace(value="emulated"))

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        workload = self.job.spec.workload
        window = window_for(
            [0.99],
            level,
            window_s=float(workload.window),
            max_window_s=float(workload.max_window),
            warmup_s=float(workload.warmup),
            latency_bound_s=min(s.bound for s in self.job.spec.slos if s.metric.is_latency) / 1e6,
        )
        load = LoadPoint(Arrivals.POISSON, level)
        due_s = arrivals_of(load, (window.warmup_s, window.duration_s, window.tail_s), seed)
        queue = self._under(due_s, seed)
        ends_ns = (1e9 * due_s).astype(np.int64), (1e9 * queue.answered_s).astype(np.int64)
        in_time = queue.answered_s < window.total_s
        requests = AnsweredRequests(*(ns[in_time] for ns in ends_ns), int(1e9 * window.total_s))
        measured = Measurement.of_all(figures_of(observe_open(requests, due_s, window), load, seed))
        counted = statistics(queue, window)
        measured = replace(measured, server=counted, models={self.label: counted})
        return judge_point(self.job.spec.slos, measured)

    def one_at_a_time(self, seed: int) -> dict[str, float]:
        return {"": float(self._under(np.zeros(1), seed).answered_s[0])}

    def many_at_once(self, concurrency: int, seed: int) -> float:
        count = 50 * concurrency
        return count / float(self._under(np.zeros(count), seed).answered_s.max())

    def lost(self, reason: Reason) -> None:
        raise RuntimeError(reason)  # nothing fails here

    def _under(self, due_s: Times, seed: int) -> Queue:
        queue = Queue(self.served, due_s, self.luck, random.Random(f"{seed}/{self.luck}"))
        queue.run()
        return queue


def statistics(queue: Queue, window: Window) -> ServerStatistics:
    """Triton's, of the batches that ended inside the window."""
    begin_s, end_s = window.warmup_s, window.warmup_s + window.duration_s
    inside = [(size, took_s) for end, size, took_s in queue.batches if begin_s <= end < end_s]
    executions, took_ns = Counter[int](), Counter[int]()
    for size, took_s in inside:
        executions[size] += 1
        took_ns[size] += round(1e9 * took_s)
    count = sum(size for size, _ in inside)
    compute_us = sum(size * took_s for size, took_s in inside) / max(count, 1) * 1e6
    mean_us = 1e6 * float(np.mean(queue.answered_s - queue.due_s)) - 1e3 * WAY_MS
    rows = tuple((n, executions[n], took_ns[n]) for n in sorted(executions))
    queue_us = max(mean_us - compute_us, 0.0)
    return ServerStatistics(
        count, 0, count, len(inside), queue_us, 0.0, compute_us, 0.0, batch_stats=rows
    )


def main() -> None:
    path = tables.growing_path(NAME)
    path.unlink(missing_ok=True)
    tables.append(path, {"machine": {"emulated": "benchmarks/searches/emulate.py"}})
    job = prepare(Request(spec=tables.spec_path(NAME)))
    grid, bench, every = Grid(job, ()), EmulatedBench(job), in_order(job.space)
    again = random.Random(NAME).sample(every, REPEATED)
    todo = [(c, 0) for c in every] + [(c, n) for n in range(1, REPEATS + 1) for c in again]
    for candidate, number in todo:
        recording: Any = recorded(bench, grid, candidate, number)  # type: ignore[arg-type]
        grid.add(recording)
        tables.append(path, tables.line_of(replace(recording, seconds=0.0)))
    best = max(grid.firsts.values())
    print(f"{tables.pack(path)}: {len(every)} configs, the best {best:.0f}/s")


if __name__ == "__main__":
    main()
