# ruff: noqa: N802  (the names are NVML's)
from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from tuner.load.watch.machine import GpuClocks, gpu_clocks
from tuner.spec.fields import Gpus

IDLE, POWER_CAP, SLOWDOWN, HOT = 0x1, 0x4, 0x8, 0x20


class FakeError(Exception):
    pass


@dataclass
class FakeNvml:
    """``pynvml`` over cards given as (SM clock in MHz, event reasons); None cannot be read."""

    cards: list[tuple[int, int] | None]
    driver: bool = True
    open: int = 0
    NVML_CLOCK_SM: int = 1
    NVMLError = FakeError

    def nvmlInit(self) -> None:
        if not self.driver:
            raise FakeError
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> tuple[int, int]:
        card = self.cards[index]
        if card is None:
            raise FakeError
        return card

    def nvmlDeviceGetClockInfo(self, card: tuple[int, int], kind: int) -> int:
        assert kind == self.NVML_CLOCK_SM
        return card[0]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, card: tuple[int, int]) -> int:
        return card[1]


def read(
    monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml | None, gpus: Gpus = "all"
) -> GpuClocks | None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # None: cannot be imported
    with gpu_clocks(gpus) as clocks:
        reading = clocks()
    assert nvml is None or nvml.open == 0
    return reading


def test_the_slowest_working_card_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml([(1980, 0), (1700, POWER_CAP), (345, IDLE), None])
    assert read(monkeypatch, nvml) == GpuClocks(1700.0, throttled=False)


def test_only_the_cards_of_the_server_count(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml([(1980, 0), (1200, HOT)])
    assert read(monkeypatch, nvml, (0,)) == GpuClocks(1980.0, throttled=False)
    assert read(monkeypatch, nvml, (1,)) == GpuClocks(1200.0, throttled=True)
    assert read(monkeypatch, nvml, "none") is None


@pytest.mark.parametrize("reason", [SLOWDOWN, HOT, HOT | POWER_CAP, 0x40, 0x80])
def test_heat_and_faults_hold_clocks_down(monkeypatch: pytest.MonkeyPatch, reason: int) -> None:
    clocks = read(monkeypatch, FakeNvml([(1980, 0), (1200, reason)]))
    assert clocks == GpuClocks(1200.0, throttled=True)


@pytest.mark.parametrize(
    "nvml",
    [None, FakeNvml([], driver=False), FakeNvml([]), FakeNvml([None]), FakeNvml([(345, IDLE)])],
)
def test_clocks_without_a_driver_or_gpu_are_none(
    monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml | None
) -> None:
    assert read(monkeypatch, nvml) is None


def test_a_driver_that_goes_away_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(FakeNvml):
        def nvmlDeviceGetCount(self) -> int:
            raise FakeError

    assert read(monkeypatch, Gone([(1980, 0)])) is None
