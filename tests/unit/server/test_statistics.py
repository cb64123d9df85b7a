"""Triton's counters and metrics as facts."""

from __future__ import annotations

import pytest
from tritonclient.grpc import service_pb2

from tuner.errors import ServerGoneError
from tuner.server.control import BatchStatistics, Metrics, StatisticsSnapshot

METRICS = """\
# HELP nv_inference_request_success Number of successful inference requests
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="a",version="1"} 7
nv_inference_request_success{model="b",version="1"} 2
# HELP nv_inference_pending_request_count Instantaneous number of pending requests
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="a",version="1"} 3
# HELP nv_gpu_memory_total_bytes GPU total memory, in bytes
# TYPE nv_gpu_memory_total_bytes gauge
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 1.5e+11
"""


def test_versions_of_a_model_are_added_up() -> None:
    response = service_pb2.ModelStatisticsResponse()
    for version in range(2):
        stats = response.model_stats.add(inference_count=10, execution_count=4)
        stats.inference_stats.success.count = 9
        stats.inference_stats.queue.ns = 1000 * (version + 1)
        stats.inference_stats.cache_hit.count = 3
        stats.batch_stats.add(batch_size=2).compute_infer.MergeFrom(
            service_pb2.StatisticDuration(count=3, ns=30)
        )
    response.model_stats[1].batch_stats.add(batch_size=4).compute_infer.count = 1

    snapshot = StatisticsSnapshot.from_response(response)

    assert snapshot.inference_count == 20
    assert snapshot.execution_count == 8
    assert snapshot.success_count == 18
    assert snapshot.queue_ns == 3000
    assert snapshot.cache_hit_count == 6
    assert snapshot.batches == {2: BatchStatistics(6, 60), 4: BatchStatistics(1, 0)}


def test_metrics_keep_tritons_names_and_are_picked_by_label() -> None:
    metrics = Metrics.parse(METRICS)
    assert metrics.values("nv_inference_request_success", model="a") == [7]
    assert metrics.values("nv_inference_request_success") == [7, 2]
    assert metrics.values("nv_gpu_memory_total_bytes") == [1.5e11]
    assert metrics.values("nv_inference_pending_request_count", model="b") == []


@pytest.mark.parametrize("text", ["<html>no { metrics</html>", 'nv_x{model="a"} many'])
def test_what_is_no_metrics_endpoint_is_told(text: str) -> None:
    with pytest.raises(ServerGoneError, match="reading the metrics"):
        Metrics.parse(text)
