"""What a model that was just loaded is asked for, until its answers take about the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from tuner.load.probes import warming
from tuner.load.probes.warming import batch_sizes, warm_batches
from tuner.load.setup import LoadTarget, ShapedInputs, Stream, StreamRequests
from tuner.load.traffic.encoding import TensorShape
from tuner.load.traffic.inputs import DrawnInputs
from tuner.load.traffic.wire import RequestForm
from tuner.modelconfig.schema import new_config
from tuner.server.server import Endpoints
from tuner.spec.workload import RandomInputs


def config(most: int, *, batcher: bool = True, cache: bool = False) -> Any:
    made: Any = new_config()
    made.max_batch_size = most
    if batcher:
        made.dynamic_batching.SetInParent()
    made.response_cache.enable = cache
    return made


@pytest.mark.parametrize(
    ("most", "least", "expected"),
    [
        (8, 1, [1, 2, 4, 8, 3, 5, 6, 7]),
        (6, 1, [1, 2, 4, 3, 5, 6]),
        (70, 1, [1, 2, 4, 8, 16, 32, 64, 3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 70]),
        (32, 8, [8, 16, 32, 24]),
        (6, 4, [4]),
        (1, 1, [1]),
        (0, 1, [1]),
    ],
)
def test_sizes_are_all_up_to_sixteen_requests_then_doubled(
    most: int, least: int, expected: list[int]
) -> None:
    assert batch_sizes(config(most), least) == expected


def test_without_a_batcher_one_size_is_probed_and_none_behind_a_cache() -> None:
    assert batch_sizes(config(8, batcher=False), 1) == [1]
    assert batch_sizes(config(8, cache=True), 1) == []


class FakeModel:
    """Instances in turn answer on a clock of their own; the k-th calls of a size may be slow."""

    def __init__(self, slow: dict[int, float], usual_s: float = 0.004, instances: int = 1) -> None:
        self.slow, self.usual_s, self.instances = slow, usual_s, instances
        self.now_s = 0.0
        self.sizes: list[int] = []
        self.calls: Counter[tuple[int, int]] = Counter()
        self.free_s = [0.0] * instances

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def future(self, question: bytes, timeout: float) -> Any:
        assert timeout > 0
        size = service_pb2.ModelInferRequest.FromString(question).inputs[0].shape[0]
        one = len(self.sizes) % self.instances
        self.sizes.append(size)
        self.calls[one, size] += 1
        took_s = self.slow.get(self.calls[one, size], self.usual_s)
        self.free_s[one] = max(self.free_s[one], self.now_s) + took_s
        return Call(self, self.free_s[one])


class Call:
    def __init__(self, model: FakeModel, at_s: float) -> None:
        self.model, self.at_s = model, at_s

    def exception(self) -> None:
        self.model.now_s = max(self.model.now_s, self.at_s)


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def warmed(model: FakeModel, most: int, patience_s: float = 120.0, width: int = 4) -> Any:
        @contextmanager
        def asking(_: Endpoints) -> Iterator[FakeModel]:
            yield model

        monkeypatch.setattr(warming, "asking", asking)
        monkeypatch.setattr(warming, "time", model)
        form = RequestForm("m", {"x": "FP32"}, batched=True, batch_size=1)
        inputs = DrawnInputs(RandomInputs(kind="random"), [TensorShape("x", "FP32", (width,))])
        stream = Stream(
            "m",
            LoadTarget(Endpoints("h:1", "h:2", None)),
            form,
            (ShapedInputs(inputs),),
            StreamRequests("m"),
        )
        return warm_batches(stream, config(most), model.instances, patience_s)

    return warmed


@pytest.mark.parametrize("instances", [1, 2])
def test_size_with_a_slow_second_call_is_repeated_until_fast(ask: Any, instances: int) -> None:
    model = FakeModel({2: 0.7}, instances=instances)
    first_calls = ask(model, 16)
    timed = {n: 6 for n in (1, 2, 4, 8, 16) if instances > 1}  # alone, and beside each other
    assert Counter(model.sizes) == {n: 4 * instances + timed.get(n, 0) for n in range(1, 17)}
    assert sorted(first_calls.slow_sizes) == [*range(1, 17)]
    assert first_calls.slow_sizes[1].longest_s == pytest.approx(0.7, abs=0.05)
    assert not first_calls.remarks


def test_fast_model_gets_two_first_calls_per_size(ask: Any) -> None:
    model = FakeModel({})
    first_calls = ask(model, 16)
    assert (first_calls.slow, first_calls.remarks) == (None, ())
    assert Counter(model.sizes) == dict.fromkeys(range(1, 17), 2)
    assert model.now_s == pytest.approx(32 * 0.004)


def test_sizes_without_time_are_reported_and_come_after_the_doubled_sizes(ask: Any) -> None:
    model = FakeModel({}, usual_s=0.5)
    few = ask(model, 8)
    assert model.sizes == [1, 1, 2, 2, 4, 4, 8, 8, 3, 3, 5, 5]
    assert (few.slow, sorted(few.left)) == (None, [6, 7])
    some = ask(FakeModel({1: 9.0}), 4, patience_s=20.0)
    assert [(n, round(calls.longest_s)) for n, calls in some.slow_sizes.items()] == [(1, 9), (2, 9)]
    assert sorted(some.left) == [3, 4]


def test_large_requests_are_left_to_the_load_and_never_built(ask: Any) -> None:
    model = FakeModel({})
    first_calls = ask(model, 32, width=1 << 21)
    assert {*model.sizes} == {1, 2, 4, 3, 5, 6, 7}
    assert sorted(first_calls.left) == [*range(8, 17), 32]
