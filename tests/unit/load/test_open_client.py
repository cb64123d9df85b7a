from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from tritonclient.grpc import model_config_pb2

from tuner.errors import LoadFailedError
from tuner.load.arrivals import poisson
from tuner.load.client_process import Answers, Job, OpenLoop, Outcome
from tuner.load.command import Target
from tuner.load.export import Requests
from tuner.load.generator import Window
from tuner.load.measurement import Arrivals, LoadPoint, Measurement
from tuner.load.messages import RequestForm
from tuner.load.open_client import OpenClient, measurement, observe
from tuner.load.timeline import observe_open
from tuner.load.workload import ByConfig, may_reject
from tuner.spec.workload import Protocol
from tuner.triton.server import Endpoints

BEGIN_NS = 1_795_000_000_000_000_000
WINDOW = Window(duration_s=2.0, warmup_s=0.5, deadline_s=60.0, tail_s=0.5)
LOAD = LoadPoint(Arrivals.POISSON, 100.0)
DUE = poisson(100.0, (0.5, 2.0, 0.5), seed=1)
FORM = RequestForm("m", {}, {}, batched=True, batch_size=1)


def answers(
    outcomes: npt.NDArray[np.int8], *, delay_s: float = 0.0, latency_s: float = 0.010, **more: Any
) -> Answers:
    """Everything sent ``delay_s`` after it was due and answered ``latency_s`` later."""
    sent = BEGIN_NS + np.round((DUE + delay_s) * 1e9).astype(np.int64)
    answered = sent + round(latency_s * 1e9)
    return Answers(
        sent_ns=np.where(outcomes > Outcome.UNSENT, sent, 0),
        answered_ns=np.where(outcomes > Outcome.UNANSWERED, answered, 0),
        outcomes=outcomes,
        end_ns=BEGIN_NS + 3_000_000_000,
        **{"busy": 0.1, "failure": "", "lost": "", **more},
    )


def outcomes(of: dict[Outcome, npt.NDArray[np.bool_]]) -> npt.NDArray[np.int8]:
    given = np.full(DUE.size, Outcome.ANSWERED, dtype=np.int8)
    for outcome, where in of.items():
        given[where] = outcome
    return given


def measured(found: Answers) -> Measurement:
    return measurement(observe(found, DUE, WINDOW), found, LOAD, WINDOW, batch_size=1)


EVERY_FIFTH = np.arange(DUE.size) % 5 == 0


class TestFigures:
    def test_without_refusals_it_is_what_perf_analyzers_export_gives(self) -> None:
        found = answers(outcomes({}))
        exported = Requests(found.sent_ns, found.answered_ns, found.end_ns)
        expected = observe_open(exported, DUE, WINDOW)
        observed = observe(found, DUE, WINDOW)
        assert observed.latencies_us == pytest.approx(expected.latencies_us)
        assert observed.answered_count == expected.answered_count
        assert observed.sent_per_s == expected.sent_per_s
        assert observed.mean_in_flight == pytest.approx(expected.mean_in_flight)

    def test_rejected_requests_are_errors_and_have_no_latency(self) -> None:
        found = measured(answers(outcomes({Outcome.REJECTED: EVERY_FIFTH})))
        assert found.rejected_count == found.failed_count == pytest.approx(40, abs=1)
        assert found.error_rate == pytest.approx(0.2, abs=0.01)
        assert found.throughput_infer_per_s == pytest.approx(80.0, abs=1.5)
        assert found.latencies_us is not None
        assert found.latencies_us.size == pytest.approx(160, abs=1)
        assert found.p99_latency_us == pytest.approx(10_000.0, abs=1.0)
        assert found.sent_per_s == pytest.approx(100.0, abs=1.0)

    def test_failed_requests_are_told_from_rejected_ones(self) -> None:
        few = np.arange(DUE.size) % 20 == 1
        found = measured(answers(outcomes({Outcome.REJECTED: EVERY_FIFTH, Outcome.FAILED: few})))
        assert found.failed_count - found.rejected_count == pytest.approx(10, abs=1)

    def test_every_request_of_the_window_is_accounted_for(self) -> None:
        found = measured(
            answers(
                outcomes({Outcome.REJECTED: EVERY_FIFTH, Outcome.UNANSWERED: DUE > 2.0}),
                latency_s=0.0,
            )
        )
        total = found.completed_count + found.failed_count + found.unanswered_count
        assert total == 200
        assert found.sent_per_s == 100.0

    def test_unanswered_requests_count_as_the_slowest(self) -> None:
        found = measured(answers(outcomes({Outcome.UNANSWERED: EVERY_FIFTH})))
        assert found.unanswered_count == pytest.approx(40, abs=1)
        assert found.p50_latency_us == pytest.approx(10_000.0, abs=1.0)
        assert found.p99_latency_us > 500_000.0

    def test_requests_never_sent_show_that_the_client_is_behind(self) -> None:
        found = measured(answers(outcomes({Outcome.UNSENT: DUE > 1.5})))
        assert found.sent_per_s == pytest.approx(50.0, abs=8.0)
        inside = DUE[(DUE >= 0.5) & (DUE < 2.5)]
        assert found.late_sends == pytest.approx((inside > 1.5).mean())

    def test_latency_counts_from_the_due_time_when_the_client_stalls(self) -> None:
        given = answers(outcomes({}))
        stalled = (DUE > 1.0) & (DUE < 1.2)
        delay_ns = np.where(stalled, np.round((1.2 - DUE) * 1e9), 0).astype(np.int64)
        late = Answers(
            **{
                **vars(given),
                "sent_ns": given.sent_ns + delay_ns,
                "answered_ns": given.answered_ns + delay_ns,
            }
        )
        found = measured(late)
        assert found.latencies_us is not None
        assert found.latencies_us[-1] == pytest.approx(210_000.0, rel=0.1)
        assert found.late_sends == pytest.approx(stalled.sum() / 200, abs=0.006)

    def test_nothing_answered_is_no_result_and_the_server_says_why(self) -> None:
        nothing = answers(outcomes({Outcome.FAILED: DUE >= 0.0}), failure="negative input")
        with pytest.raises(LoadFailedError, match="negative input"):
            observe(nothing, DUE, WINDOW)

    def test_a_measurement_with_rejections_survives_json(self) -> None:
        found = measured(answers(outcomes({Outcome.REJECTED: EVERY_FIFTH})))
        again = Measurement.from_json(found.to_json())
        assert again == found
        assert again.rejected_count > 0


class Refused(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode, words: str) -> None:
        super().__init__(words)
        self.code = lambda: code
        self.details = lambda: words


FULL = Refused(grpc.StatusCode.UNAVAILABLE, "[request id: <id_unknown>] Exceeds maximum queue size")
EXPIRED = Refused(grpc.StatusCode.UNAVAILABLE, "[request id: <id_unknown>] Request timeout expired")
BROKEN = Refused(grpc.StatusCode.INTERNAL, "negative input")
CUT = Refused(grpc.StatusCode.UNAVAILABLE, "Socket closed")


def sent(replies: list[Refused | None], total_s: float = 0.15) -> tuple[Answers, list[bytes]]:
    """What became of requests 10 ms apart that are replied to in turn, after 1 ms."""
    seen: list[bytes] = []

    async def send(request: bytes) -> None:
        reply = replies[len(seen)]
        seen.append(request)
        await asyncio.sleep(0.001)
        if reply is not None:
            raise reply

    async def run() -> Answers:
        due = np.arange(len(replies)) * 0.010
        return await OpenLoop(send, [b"a", b"b"], due, total_s).run()

    return asyncio.run(run()), seen


class TestOpenLoop:
    def test_requests_go_round_in_order_and_once_each(self) -> None:
        found, seen = sent([None] * 5)
        assert seen == [b"a", b"b", b"a", b"b", b"a"]
        assert found.outcomes.tolist() == [Outcome.ANSWERED] * 5
        assert (np.diff(found.sent_ns) > 0).all()
        assert (found.answered_ns - found.sent_ns >= 1_000_000).all()
        # the first is sent a little after the start of the run
        assert found.end_ns - found.sent_ns[0] >= 140_000_000

    def test_refusals_are_told_apart_and_never_sent_again(self) -> None:
        found, seen = sent([None, FULL, EXPIRED, BROKEN, None])
        assert found.outcomes.tolist() == [
            Outcome.ANSWERED,
            Outcome.REJECTED,
            Outcome.REJECTED,
            Outcome.FAILED,
            Outcome.ANSWERED,
        ]
        assert len(seen) == 5
        assert found.failure == "negative input"
        assert found.lost == ""

    def test_a_lost_connection_ends_the_run_at_once(self) -> None:
        found, seen = sent([None, CUT, *[None] * 20], total_s=30.0)
        assert found.lost == "Socket closed"
        assert len(seen) < 10

    def test_a_run_that_is_stopped_tells_what_it_has(self) -> None:
        """Stopped by its own fifth request, so that it matters little how busy the machine is."""
        seen: list[bytes] = []

        async def run() -> Answers:
            async def send(request: bytes) -> None:
                seen.append(request)
                if len(seen) == 5:
                    load.stop()

            load = OpenLoop(send, [b"a"], np.arange(1000) * 0.010, 30.0)
            return await load.run()

        found = asyncio.run(run())
        answered = found.outcomes == Outcome.ANSWERED
        assert 4 <= answered.sum() < 500
        assert (found.outcomes[~answered] <= Outcome.UNANSWERED).all()
        assert found.end_ns - found.sent_ns[0] < 5_000_000_000

    def test_what_is_in_flight_at_the_end_is_unanswered_and_the_rest_unsent(self) -> None:
        async def silence(_: bytes) -> None:
            await asyncio.Event().wait()

        async def run() -> Answers:
            return await OpenLoop(silence, [b"a"], np.array([0.0, 0.01, 60.0]), 0.1).run()

        found = asyncio.run(run())
        assert found.outcomes.tolist() == [
            Outcome.UNANSWERED,
            Outcome.UNANSWERED,
            Outcome.UNSENT,
        ]
        assert found.answered_ns.tolist() == [0, 0, 0]

    def test_a_defect_of_the_client_is_not_taken_for_silence(self) -> None:
        async def broken(_: bytes) -> None:
            raise ZeroDivisionError

        async def run() -> Answers:
            return await OpenLoop(broken, [b"a"], np.array([0.0]), 0.05).run()

        with pytest.raises(ExceptionGroup) as error:
            asyncio.run(run())
        assert error.group_contains(ZeroDivisionError)


def test_jobs_and_answers_survive_their_files(tmp_path: Path) -> None:
    form = RequestForm("m", {"x": "FP32"}, {"x": (8,)}, batched=True, batch_size=2)
    files = {name: tmp_path / name for name in ("inputs", "due", "answers")}
    job = Job("127.0.0.1:1", form, total_s=3.0, **files)
    job.write(tmp_path / "job")
    again = Job.read(tmp_path / "job")
    assert (again.address, again.total_s, again.answers) == ("127.0.0.1:1", 3.0, files["answers"])
    assert again.form.shapes == {"x": [8]}
    found = answers(outcomes({Outcome.REJECTED: EVERY_FIFTH}), failure="no", lost="gone")
    found.write(tmp_path / "answers.npz")
    back = Answers.read(tmp_path / "answers.npz")
    assert (back.sent_ns == found.sent_ns).all()
    assert (back.outcomes == found.outcomes).all()
    assert (back.end_ns, back.busy) == (found.end_ns, found.busy)
    assert (back.failure, back.lost) == ("no", "gone")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, False),
        ({"max_queue_size": 8}, True),
        ({"default_timeout_microseconds": 1000}, True),  # REJECT is the default action
        ({"default_timeout_microseconds": 1000, "timeout_action": 1}, False),
        ({"default_timeout_microseconds": 1000, "timeout_action": 1, "max_queue_size": 8}, True),
        ({"allow_timeout_override": True}, False),  # requests bring no timeouts
    ],
    ids=str,
)
def test_configs_that_may_refuse_requests(policy: dict[str, Any], expected: bool) -> None:
    queue = model_config_pb2.ModelQueuePolicy(**policy)
    default, levels = model_config_pb2.ModelConfig(), model_config_pb2.ModelConfig()
    default.dynamic_batching.default_queue_policy.CopyFrom(queue)
    levels.dynamic_batching.priority_queue_policy[2].CopyFrom(queue)
    assert may_reject(default) is expected
    assert may_reject(levels) is expected


def test_a_config_without_a_batcher_refuses_nothing() -> None:
    assert not may_reject(model_config_pb2.ModelConfig())


class Named:
    """Stands for a generator: answers with its own name."""

    def __init__(self, name: str, protocol: Protocol = Protocol.GRPC) -> None:
        self.name = name
        self.target = SimpleNamespace(protocol=protocol)

    def measure(self, *_: Any) -> str:
        return self.name


@pytest.mark.parametrize(
    ("arrivals", "protocol", "queue_size", "expected"),
    [
        (Arrivals.POISSON, Protocol.GRPC, 8, "client"),
        (Arrivals.POISSON, Protocol.GRPC, 0, "perf_analyzer"),
        (Arrivals.CLOSED, Protocol.GRPC, 8, "perf_analyzer"),
        (Arrivals.POISSON, Protocol.HTTP, 8, "perf_analyzer"),
    ],
)
def test_the_running_config_decides_who_measures(
    arrivals: Arrivals, protocol: Protocol, queue_size: int, expected: str
) -> None:
    config = model_config_pb2.ModelConfig()
    config.dynamic_batching.default_queue_policy.max_queue_size = queue_size
    usual: Any = Named("perf_analyzer")
    client: Any = Named("client", protocol)
    chosen = ByConfig(usual, client, lambda: config)
    assert chosen.measure(LoadPoint(arrivals, 1), WINDOW, 1) == expected


@pytest.mark.parametrize(
    ("arrivals", "protocol"),
    [(Arrivals.CLOSED, Protocol.GRPC), (Arrivals.POISSON, Protocol.HTTP)],
)
def test_closed_loops_and_http_are_refused_with_a_hint(
    arrivals: Arrivals, protocol: Protocol, tmp_path: Path
) -> None:
    unused: Any = None
    target = Target("m", Endpoints("h:1", "h:2", None), protocol)
    client = OpenClient({}, target, FORM, unused, tmp_path, unused, unused)
    with pytest.raises(LoadFailedError) as error:
        client.measure(LoadPoint(arrivals, 1), WINDOW, seed=1)
    assert error.value.hint
