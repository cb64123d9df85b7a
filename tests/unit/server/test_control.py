"""What the control of a server waits for."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from builders.effort import takes_at_most
from tritonclient.grpc import service_pb2

from tuner.errors import ServerGoneError
from tuner.server import control
from tuner.server.control import BatchStatistics, Control, Metrics, ModelState, StatisticsSnapshot
from tuner.server.memory import gpu_use
from tuner.server.server import Endpoints


def test_a_version_that_never_ends_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = SimpleNamespace(version="2" * 100_000)
    monkeypatch.setattr(Control, "metadata", lambda _: metadata)
    with Control(Endpoints("h:1", "g:1", None)) as asking:
        assert len(asking.version()) < 300


class FakeClient:
    """Tells one state of the model after the other, the last one for ever; Triton's spelling."""

    def __init__(self, *states: str | None) -> None:
        self.states: Iterator[str | None] = iter(states)
        self.last: str | None = None
        self.calls = 0
        self.unloaded: list[str] = []

    def unload_model(self, model: str, **_: Any) -> None:
        self.unloaded.append(model)

    def get_model_repository_index(self, **_: Any) -> Any:
        self.calls += 1
        self.last = next(self.states, self.last)
        models = [SimpleNamespace(name="other", state="READY")]
        if self.last is not None:
            models.append(SimpleNamespace(name="m", state=self.last))
        return SimpleNamespace(models=models)

    def close(self) -> None:
        pass


def controlled(monkeypatch: pytest.MonkeyPatch, client: FakeClient) -> Control:
    monkeypatch.setattr(control, "_POLL_S", 0.001)
    made = Control(Endpoints("127.0.0.1:1", "127.0.0.1:2", None))
    made._client.close()
    made._client = client
    return made


@pytest.mark.parametrize("gone", ["UNAVAILABLE", "", None])
def test_unloading_returns_when_the_model_is_really_gone(
    monkeypatch: pytest.MonkeyPatch, gone: str | None
) -> None:
    client = FakeClient("READY", "UNLOADING", "UNLOADING", gone)
    controlled(monkeypatch, client).unload("m", 30.0)
    assert client.unloaded == ["m"]
    assert client.calls == 4


def test_a_state_of_another_release_is_neither_ready_nor_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = FakeClient("DRAINING", "UNAVAILABLE")
    controlled(monkeypatch, client).unload("m", 30.0)
    assert client.calls == 2
    assert controlled(monkeypatch, FakeClient("DRAINING")).state("m") is ModelState.LOADING


def test_a_model_that_does_not_go_away_is_a_server_that_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = FakeClient("READY", "UNLOADING")
    with pytest.raises(ServerGoneError, match="m was not unloaded within"):
        controlled(monkeypatch, client).unload("m", 0.01)


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
def test_address_that_is_no_metrics_endpoint_is_reported(text: str) -> None:
    with pytest.raises(ServerGoneError, match="reading the metrics"):
        Metrics.parse(text)


def test_a_line_that_would_take_minutes_to_parse_is_refused_before() -> None:
    labels = ",".join(f'l{k}="v"' for k in range(200_000))

    def refused() -> None:
        with pytest.raises(ServerGoneError, match="a line of 2,"):
            Metrics.parse(f"nv_x 1\nnv_x{{{labels}}} 1\n")

    assert takes_at_most(100, refused)


def test_whatever_the_parser_raises_is_no_metrics_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def parser(text: str) -> list[str]:
        return [text.split(maxsplit=1)[9]]

    monkeypatch.setattr("prometheus_client.parser.text_string_to_metric_families", parser)
    with pytest.raises(ServerGoneError, match="reading the metrics: list index"):
        Metrics.parse(METRICS)


@pytest.mark.parametrize("odd", ["NaN", "+Inf", "-Inf", "1e308"])
def test_non_finite_metric_is_left_out_and_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, odd: str
) -> None:
    monkeypatch.setattr(control, "_left_out", [])
    text = METRICS.replace("1.5e+11", odd) + "nv_inference_pending_request_count 2\n"
    metrics = [Metrics.parse(text) for _ in range(3)]
    assert gpu_use(metrics[0]) == {}
    assert metrics[0].values("nv_gpu_memory_total_bytes") == []
    assert metrics[0].values("nv_inference_pending_request_count") == [3, 2]
    (message,) = caplog.messages
    assert "nv_gpu_memory_total_bytes" in message


def test_summaries_of_a_server_without_load_are_nothing_to_tell(
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = '# TYPE nv_s summary\nnv_s{quantile="0.5"} Nan\nnv_s_count 0\nnv_s_sum 0\n'
    assert Metrics.parse(text).values("nv_s_count") == [0]
    assert caplog.messages == []
