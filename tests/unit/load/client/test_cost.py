from __future__ import annotations

import pytest

from tuner.load.client import cost
from tuner.load.client.cost import request_cost_s
from tuner.spec.workload import Protocol


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Those measured, where a byte takes a nanosecond and a request 100 us beside."""
    counts: list[int] = []

    def measured_s(size_bytes: int, *_: object) -> float:
        counts.append(size_bytes)
        return 1e-4 + 1e-9 * size_bytes

    monkeypatch.setattr(cost, "_measured_s", measured_s)
    monkeypatch.setattr(cost, "_known", {})
    return counts


def cost_s(size_bytes: int, protocol: Protocol = Protocol.GRPC) -> float:
    return request_cost_s(size_bytes, protocol, (1,), {})


def test_requests_of_about_one_size_are_measured_once(sizes: list[int]) -> None:
    assert cost_s(602_112) == cost_s(602_260) == pytest.approx(7e-4)
    assert cost_s(32) == cost_s(900)
    cost_s(602_112, Protocol.HTTP)
    assert sizes == [600_000, 1000, 600_000]


def test_request_of_a_gigabyte_is_refused_before_sending(sizes: list[int]) -> None:
    assert cost_s(1 << 30) == pytest.approx(1.08, rel=0.05)
    assert sizes == [17_000_000]
