"""Bursts as the spec describes them, put on a real server."""

from __future__ import annotations

import pytest
from builders.load_bench import Bench
from builders.load_repository import SERVICE_S

from tuner.load.traffic.arrivals import BurstShape
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window

pytestmark = [pytest.mark.integration, pytest.mark.measuring]


def test_bursts_have_the_mean_rate_and_make_requests_wait(bench: Bench) -> None:
    arrivals = {"kind": "bursts", "burst_ratio": 20, "burst_share": 0.1, "burst_length": "100ms"}
    generator = bench.generator("plain", arrivals=arrivals)
    assert generator.setup.shape == BurstShape(20.0, 0.1, 0.1)
    load = LoadPoint(Arrivals.BURSTS, 50.0)
    measurement = generator.measure(load, Window(2.0, 0.2, 30.0, 2.0), seed=1)
    assert measurement.sent_per_s == pytest.approx(50.0, rel=0.05)
    assert measurement.p99_latency_us > 10 * SERVICE_S * 1e6
