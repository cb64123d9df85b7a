"""What a simulated window is worth against SLOs."""

from __future__ import annotations

import numpy as np
import pytest
from builders.measurements import P99_40MS
from builders.simulated import TRUTH, Simulation
from builders.spaces import INSTANCES

from tuner.measurement.measurement import Arrivals
from tuner.score.capacity import LevelRange
from tuner.spec.slo import Slo
from tuner.twin.model import Unmodelled
from tuner.twin.observation import setting_of
from tuner.twin.predicting import Requirement, capacity_of, meets, simulated_value
from tuner.twin.simulator import Outcome


def outcome(late: int, rejected: int, total: int = 3000) -> Outcome:
    latencies = np.full(total - rejected, 20e3)
    if late:
        latencies[-late:] = 50e3
    return Outcome(
        throughput_infer_per_s=100.0,
        latencies_us=latencies,
        unanswered_count=0,
        rejected_count=rejected,
        busy_cores=0.0,
        nodes=(),
    )


@pytest.mark.parametrize(
    ("late", "rejected", "met"), [(30, 0, True), (0, 30, True), (15, 15, True), (29, 29, False)]
)
def test_late_and_refused_requests_share_what_a_percentile_allows(
    late: int, rejected: int, met: bool
) -> None:
    assert meets(P99_40MS, outcome(late, rejected)) is met


def test_with_more_refused_than_a_percentile_allows_it_is_the_slowest_answers() -> None:
    window = outcome(1, 300)
    assert simulated_value(P99_40MS.metric, window) == 50e3
    assert not meets(P99_40MS, window)


def test_requests_that_are_refused_miss_a_percentile_and_an_error_rate() -> None:
    p99, p50 = Slo.parse("p99_latency <= 40ms"), Slo.parse("p50_latency <= 40ms")
    none, few = Slo.parse("error_rate <= 0%"), Slo.parse("error_rate <= 5%")
    served, refusing, late = outcome(0, 0, 1000), outcome(0, 40, 1000), outcome(20, 0, 1000)
    assert [meets(slo, served) for slo in (p99, p50, none, few)] == [True] * 4
    assert [meets(slo, refusing) for slo in (p99, p50, none, few)] == [False, True, False, True]
    assert [meets(slo, late) for slo in (p99, p50, none, few)] == [False, True, True, True]


def test_memory_is_not_judged_since_it_is_not_simulated() -> None:
    assert meets(Slo.parse("gpu_memory <= 1MB"), outcome(0, 0))


@pytest.mark.parametrize(("least", "most"), [(0.1, 40.0), (5000.0, 9000.0)])
def test_a_simulated_capacity_keeps_to_the_loads_that_may_be_asked_for(
    least: float, most: float
) -> None:
    simulation = Simulation.of(space={INSTANCES: {"int": [1, 4]}})
    setting = setting_of(simulation.space, simulation.spec)
    network = setting.network(simulation.space.current)
    assert not isinstance(network, Unmodelled)
    asked = Requirement(simulation.spec.slos, Arrivals.POISSON, LevelRange(least, most))
    found = capacity_of(setting, TRUTH, network, asked, near=300.0)
    assert found == (most if least < 1 else 0.0)  # it sustains some hundred a second
