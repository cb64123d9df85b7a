"""Each generator puts a little load on a real server, at each change of the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders.load_repository import SERVICE_S

from tuner.load.generators import GENERATORS, GeneratorKind
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window

if TYPE_CHECKING:
    from builders.load_bench import Bench

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("kind", GENERATORS, ids=lambda kind: kind.name)
def test_requests_reach_the_model_and_their_latencies_come_back(
    bench: Bench, kind: GeneratorKind
) -> None:
    window = Window(duration_s=1.0, warmup_s=0.3, deadline_s=60.0, tail_s=0.2)
    measurement = bench.generator("plain", kind).measure(
        LoadPoint(Arrivals.POISSON, 20.0), window, 1
    )
    assert measurement.completed_count > 0
    assert measurement.failed_count == 0
    assert SERVICE_S * 1e6 < measurement.p50_latency_us <= measurement.p99_latency_us
    assert not list(bench.directory.glob("load-*"))
