"""The emulated GPU: batch times in steps, two batches at once, and the table as it is stored."""

from __future__ import annotations

import random

import emulate
import numpy as np
import pytest
import recorded_table as tables
from emulate import EmulatedBench, Queue, Served
from record import Grid, recorded

from tuner.prepare.job import Request, prepare


def seconds(size: int, instances: int = 1) -> float:
    """How long as many batches of this size as there are instances take, all at once."""
    due_s = np.zeros(size * instances)
    queue = Queue(Served(instances, size, (size,), 1.0), due_s, 1.0, random.Random(1))
    queue.run()
    return float(queue.answered_s.max())


def test_times_are_flat_and_then_rise_in_steps() -> None:
    assert seconds(8) == pytest.approx(seconds(1), rel=0.1)
    assert seconds(17) > 1.4 * seconds(16)
    assert seconds(32) == pytest.approx(seconds(17), rel=0.1)


def test_two_small_batches_overlap_and_a_third_one_waits() -> None:
    assert seconds(8, instances=2) < 1.3 * seconds(8)
    assert seconds(8, instances=3) > 1.6 * seconds(8)


def test_the_table_is_what_the_script_computes() -> None:
    job = prepare(Request(spec=tables.spec_path(emulate.NAME)))
    (first, *_) = tables.read_table(emulate.NAME).recordings
    again = recorded(EmulatedBench(job), Grid(job, ()), first.candidate, 0)  # type: ignore[arg-type]
    assert again is not None
    latencies = [p.p99_latency_us for p in again.points]
    assert latencies == pytest.approx([p.p99_latency_us for p in first.points], rel=1e-5)
