"""Decoupled models on a real server: what their requests get, and what becomes of broken ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc  # type: ignore[import-untyped]
import numpy as np
import pytest
from builders.decoupled_models import GAP_S, LOST_MS, RESPONSES
from builders.measurements import latency_slo
from tritonclient.grpc import service_pb2

from tuner.errors import ModelFailsError
from tuner.load.client.job import Answers, Outcome
from tuner.load.client.process import Loop
from tuner.load.setup import StreamRequests
from tuner.load.streams_load import StreamsLoad
from tuner.load.traffic.decoupled.streaming import Question, StreamedCalls
from tuner.measurement.measurement import Arrivals, FailureReason, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.spec.workload import FileInputs

if TYPE_CHECKING:
    from builders.load_bench import Bench

pytestmark = [pytest.mark.integration, pytest.mark.long]

WINDOW = Window(duration_s=1.0, warmup_s=0.3, deadline_s=60.0, tail_s=0.5)
FIRST = latency_slo(0.99, 0.300, until_first=True)
#: In milliseconds, evenly spread.
DELAYS_MS = [20.0, 40.0, 60.0, 80.0, 100.0]


def load_on(
    bench: Bench, directory: Path, delays_ms: list[float], model: str = "delays", **workload: Any
) -> StreamsLoad:
    path = directory / "inputs.json"
    path.write_text(json.dumps({"data": [{"x": [delay]} for delay in delays_ms]}))
    requests = StreamRequests(model, FileInputs.model_validate({"kind": "file", "file": str(path)}))
    return bench.streams({model: requests}, **workload)


def measured(load: StreamsLoad, rate: float, window: Window = WINDOW) -> Measurement:
    return load.measure(LoadPoint(Arrivals.POISSON, rate), window, 1)


@pytest.mark.parametrize("model", ["delays", "over"])
def test_each_response_is_counted_and_the_first_comes_before_the_last(
    bench: Bench, tmp_path: Path, model: str
) -> None:
    measurement = measured(load_on(bench, tmp_path, DELAYS_MS, model), 40.0)
    responses = measurement.responses
    assert responses is not None
    assert (responses.fewest_responses, responses.most_responses) == (RESPONSES, RESPONSES)
    assert measurement.failed_count == measurement.unanswered_count == 0
    assert measurement.latencies_us is not None
    assert measurement.latencies_us.size == 40
    between_us = responses.p50_last_response_us - responses.p50_first_response_us
    assert between_us >= 0.5e6 * GAP_S * (RESPONSES - 1)
    assert responses.p50_first_response_us >= 60e3
    assert measurement.p99_latency_us == responses.p99_last_response_us
    assert measurement.mean_in_flight is not None


def test_with_an_slo_on_the_first_response_that_is_the_latency(
    bench: Bench, tmp_path: Path
) -> None:
    window = Window(**{**vars(WINDOW), "bounds": (FIRST,)})
    measurement = measured(load_on(bench, tmp_path, DELAYS_MS), 40.0, window)
    assert measurement.responses is not None
    assert measurement.p99_latency_us == measurement.responses.p99_first_response_us
    assert measurement.p99_latency_us < measurement.responses.p99_last_response_us
    assert measurement.within_bounds


def test_clients_that_wait_for_the_last_response_send_the_next_request(
    bench: Bench, tmp_path: Path
) -> None:
    load = load_on(bench, tmp_path, [40.0], arrivals={"kind": "closed", "restarts": 2})
    measurement = load.measure(LoadPoint(Arrivals.CLOSED, 3.0), WINDOW, 1)
    one_s = 0.040 + GAP_S * (RESPONSES - 1)
    assert measurement.completed_count > 3  # a machine that stands still makes them fewer
    assert measurement.throughput_infer_per_s <= 1.1 * 3.0 / one_s
    assert measurement.responses is not None
    assert measurement.responses.mean_responses == RESPONSES
    assert len(measurement.restarts) == 2


def test_requests_without_a_final_response_are_failures_and_hold_nobody_up(
    bench: Bench, tmp_path: Path
) -> None:
    delays_ms = [20.0, 20.0, 20.0, LOST_MS]
    measurement = measured(load_on(bench, tmp_path, delays_ms), 40.0)
    lost = measurement.failures[FailureReason.INCOMPLETE]
    assert lost.count == measurement.failed_count == pytest.approx(10, abs=4)
    assert measurement.completed_count == pytest.approx(30, abs=6)
    assert measurement.rejected_count == 0
    assert any("no final response" in warning for warning in measurement.warning_texts)


def test_a_model_that_fails_says_why(bench: Bench, tmp_path: Path) -> None:
    measurement = measured(load_on(bench, tmp_path, [20.0, -1.0]), 40.0)
    assert measurement.failures[FailureReason.OTHER].count == pytest.approx(20, abs=4)
    assert any("negative delay" in warning for warning in measurement.warning_texts)


def test_model_that_never_ends_a_response_is_reported_before_any_load(
    bench: Bench, tmp_path: Path
) -> None:
    with pytest.raises(ModelFailsError, match="no final response within 5 s"):
        load_on(bench, tmp_path, [LOST_MS]).await_first_answers(60.0, lambda _: None)


def test_probes_are_streamed_too(bench: Bench, tmp_path: Path) -> None:
    load = load_on(bench, tmp_path, [40.0])
    (calls,) = load.await_first_answers(60.0, lambda _: None)
    assert calls.model == "delays"
    alone = load.seconds_alone(60.0)
    assert alone is not None
    assert alone["delays"] >= 0.040 + GAP_S * (RESPONSES - 1)
    took_s = load.seconds_for(8, 60.0)
    assert took_s is not None
    assert took_s < 8 * alone["delays"]


class Babbler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """An emulated server: no Python model of a real one gets these past Triton's backend."""

    def service(self, details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(self.answers)

    def answers(self, requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
        for request in requests:
            number = service_pb2.ModelInferRequest.FromString(request).id
            ids = [number]
            if int(number) % 4 == 1:
                ids = [number, number]
            if int(number) % 4 == 3:
                ids = [f"not {number}", number]
            for request_id in ids:
                response = service_pb2.ModelStreamInferResponse()
                response.infer_response.id = request_id
                response.infer_response.parameters["triton_final_response"].bool_param = True
                response.infer_response.outputs.add(name="y")
                yield response.SerializeToString()


def test_emulated_server_with_double_or_unknown_responses_is_detected() -> None:
    server = grpc.server(ThreadPoolExecutor(2), [Babbler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    address = f"127.0.0.1:{port}"

    async def run() -> Answers:
        calls = StreamedCalls(address, None, {}, [Question(streamed=True)], None, 1.0)
        await calls.connect()
        load = Loop(calls.send, [b""], 0.5, clients=1, drain=calls.drain)
        answers = await load.run()
        await calls.close()
        return await calls.account(answers, load.offset_ns)

    outcomes = asyncio.run(run()).outcomes.tolist()
    server.stop(0)
    sure = outcomes[: len(outcomes) // 4 * 4 - 4]  # the second answer to the last ones may be late
    assert len(sure) >= 4
    assert sure == [Outcome.ANSWERED, Outcome.DOUBLED] * (len(sure) // 2)


@pytest.mark.measuring
@pytest.mark.parametrize("rate", [20.0, 60.0, 120.0])
def test_the_p99_of_the_first_response_is_the_known_delay(
    bench: Bench, tmp_path: Path, rate: float
) -> None:
    """The delays are spread evenly over 100 to 300 ms; the model's threads sleep side by side."""
    delays_ms = np.linspace(100.0, 300.0, 101)
    window = Window(duration_s=10.0, warmup_s=1.0, deadline_s=90.0, tail_s=0.5)
    measurement = measured(load_on(bench, tmp_path, delays_ms.tolist()), rate, window)
    assert measurement.responses is not None
    known_us = 1e3 * float(np.quantile(delays_ms, 0.99))
    assert measurement.responses.p99_first_response_us == pytest.approx(known_us, rel=0.05)
