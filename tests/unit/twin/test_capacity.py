"""What a simulated window is worth against SLOs."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import P99_40MS

from tuner.twin.capacity import meets, simulated_value
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
        hit_rate=0.0,
        queue_us=0.0,
        compute_us=0.0,
        executions=np.zeros(2, dtype=np.int64),
        backlog=0,
        busy_cores=0.0,
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
