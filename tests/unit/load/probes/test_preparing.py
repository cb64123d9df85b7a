"""What is asked before a load: the contents of a cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest

from tuner.errors import ServerGoneError
from tuner.load.probes import preparing
from tuner.load.probes.preparing import (
    IN_FLIGHT,
    MARGIN,
    PROBES,
    Filling,
    ask_in_order,
    fill,
)
from tuner.load.setup import LoadTarget, ShapedInputs, Stream, StreamRequests
from tuner.load.traffic.encoding import TensorShape
from tuner.load.traffic.inputs import DrawnInputs
from tuner.load.traffic.wire import RequestForm
from tuner.server.server import Endpoints
from tuner.spec.workload import RandomInputs

REQUESTS = [b"%d" % n for n in range(1000)]
ANSWER = bytes(100)
REFUSED = "[request id: 1] Exceeds maximum queue size"
FORM = RequestForm("m", {"x": "FP32"}, batched=True, batch_size=1)


class FakeRpcError(grpc.RpcError):
    def __init__(self, status: grpc.StatusCode, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class FakeModel:
    """Answers when it is asked for the result, or raises an error instead."""

    def __init__(self, error: FakeRpcError | None = None) -> None:
        self.sent: list[bytes] = []
        self.in_flight = self.most_in_flight = 0
        self.error = error

    def future(self, request: bytes, timeout: float) -> FakeModel:
        assert timeout > 0
        self.sent.append(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return self

    def result(self) -> bytes:
        self.in_flight -= 1
        if self.error is not None:
            raise self.error
        return ANSWER

    def code(self) -> grpc.StatusCode:
        assert self.error is not None
        return self.error.status

    def details(self) -> str:
        assert self.error is not None
        return self.error.words


def sent_after_the_probes(model: FakeModel) -> Sequence[bytes]:
    return model.sent[PROBES:]


def test_first_calls_use_as_many_of_the_last_inputs_as_fit_in_order() -> None:
    model = FakeModel()
    filling = ask_in_order(model, REQUESTS, size=200 * len(ANSWER))
    assert (filling.sent, filling.of, filling.short) == (int(MARGIN * 200) + 1, 1000, False)
    assert sent_after_the_probes(model) == REQUESTS[-filling.sent :]


@pytest.mark.parametrize("size", [None, 1 << 40])
def test_all_requests_are_sent_where_they_fit(size: int | None) -> None:
    model = FakeModel()
    assert ask_in_order(model, REQUESTS, size).sent == 1000
    assert sent_after_the_probes(model) == REQUESTS
    assert model.most_in_flight == IN_FLIGHT


def test_slow_model_gets_first_calls_while_time_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The probes take 6.4 s, so that in ten a hundred can be asked."""
    moments = iter([0.0, 6.4, 20.0])
    monkeypatch.setattr(preparing.time, "monotonic", lambda: next(moments))
    model = FakeModel()
    filling = ask_in_order(model, REQUESTS, size=None)
    assert filling == Filling(sent=100, of=1000, seconds=20.0, short=True)


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED])
def test_a_server_that_is_gone_is_no_empty_cache(code: grpc.StatusCode) -> None:
    with pytest.raises(ServerGoneError, match="Socket closed"):
        ask_in_order(FakeModel(FakeRpcError(code, "Socket closed")), REQUESTS, None)


@pytest.mark.parametrize(
    "error",
    [
        FakeRpcError(grpc.StatusCode.UNAVAILABLE, REFUSED),
        FakeRpcError(grpc.StatusCode.UNAVAILABLE, "out of paper"),
        FakeRpcError(grpc.StatusCode.INVALID_ARGUMENT, "wrong shape"),
    ],
)
def test_inputs_that_the_model_refuses_do_not_end_filling(error: FakeRpcError) -> None:
    assert ask_in_order(FakeModel(error), REQUESTS, size=1000).sent == 1000


def test_without_repeated_inputs_nothing_is_probed(tmp_path: Path) -> None:
    """No channel is opened either, which this test could not."""
    inputs = DrawnInputs(RandomInputs(kind="random"), [TensorShape("x", "FP32", (4,))])
    nowhere = LoadTarget(Endpoints("nowhere:1", "nowhere:2", None))
    filling = fill(
        Stream("m", nowhere, FORM, (ShapedInputs(inputs),), StreamRequests("m")), seed=1, size=1000
    )
    assert (filling.sent, filling.of) == (0, 0)
