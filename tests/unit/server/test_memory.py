# ruff: noqa: N802  (the names are NVML's)
"""Readings of memory: Triton's metrics of several GPUs, the driver's, the machine's."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tuner.errors import ServerGoneError
from tuner.machine import host
from tuner.server import memory
from tuner.server.control import Metrics
from tuner.server.memory import MACHINE, Memory, gpu_use, read_memory, taken
from tuner.server.server import Place
from tuner.server.shared_memory import SHM

MIB = 1 << 20
GPUS = [f"GPU-{n}f2c9ad1-8f4e-6b0a-0cf7-3d1e5a7b9c{n}0" for n in range(8)]
SLICES = [f"MIG-{n}d9f1c52-6a1e-5c3b-9a7d-0b2f4e6d8a1{n}" for n in range(2)]


def metrics(use_mib: Mapping[str, tuple[int, int]]) -> Metrics:
    """As Triton writes them; DCGM tells it whole MiB."""
    text = ""
    for index, what in enumerate(("used", "total")):
        name = f"nv_gpu_memory_{what}_bytes"
        text += f"# HELP {name} GPU {what} memory, in bytes\n# TYPE {name} gauge\n"
        for uuid, use in use_mib.items():
            text += f'{name}{{gpu_uuid="{uuid}"}} {use[index] * MIB:.6f}\n'
    return Metrics.parse(f"{text}# TYPE nv_cpu_memory_used_bytes gauge\n")


@pytest.mark.parametrize("count", [1, 2, 8])
def test_each_gpu_that_triton_sees_is_distinguished(count: int) -> None:
    text = metrics({uuid: (1000 * n + 500, 81559) for n, uuid in enumerate(GPUS[:count])})
    in_use = read_memory(lambda: text, Place.ELSEWHERE, "all")
    assert in_use == {
        f"memory of {uuid}": Memory((1000 * n + 500) * MIB, 0, 81559 * MIB)
        for n, uuid in enumerate(GPUS[:count])
    }


def test_a_gpu_that_triton_cannot_read_is_not_empty() -> None:
    """Triton reports 0 of 0 where DCGM tells nothing, as it does of a GPU that is split (MIG)."""
    assert gpu_use(metrics({GPUS[0]: (0, 0), GPUS[1]: (3, 80)})) == {GPUS[1]: (3 * MIB, 80 * MIB)}
    assert gpu_use(metrics({})) == gpu_use(None) == {}


class GoneError(Exception):
    pass


class FakeNvml:
    """``pynvml`` over GPUs, each a list of MiB used and total by UUID: one, or slices of it."""

    NVMLError = GoneError

    def __init__(self, *gpus: Mapping[str, tuple[int, int]], can_split: bool = True) -> None:
        self.gpus, self.can_split = gpus, can_split

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Mapping[str, tuple[int, int]]:
        return self.gpus[index]

    def nvmlDeviceGetMigMode(self, gpu: Mapping[str, object]) -> Sequence[int]:
        if not self.can_split:
            raise GoneError
        split = int(any(uuid.startswith("MIG-") for uuid in gpu))
        return split, split

    def nvmlDeviceGetMaxMigDeviceCount(self, _: object) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(
        self, gpu: Mapping[str, tuple[int, int]], index: int
    ) -> Mapping[str, tuple[int, int]]:
        if index >= len(gpu):
            raise GoneError
        return dict([[*gpu.items()][index]])

    def nvmlDeviceGetMemoryInfo(self, gpu: Mapping[str, tuple[int, int]]) -> SimpleNamespace:
        ((used, total),) = gpu.values()
        return SimpleNamespace(used=used * MIB, total=total * MIB)

    def nvmlDeviceGetUUID(self, gpu: Mapping[str, object]) -> str:
        (uuid,) = gpu
        return uuid


def driver(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml | None) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)


def of_gpus(text: Metrics | None) -> dict[str, Memory]:
    in_use = read_memory(lambda: text, Place.CONTAINER, "all")
    return {name: m for name, m in in_use.items() if name != MACHINE}


def test_the_driver_knows_the_slices_that_metrics_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    slices = {SLICES[0]: (2000, 9856), SLICES[1]: (12, 19968)}
    driver(monkeypatch, FakeNvml(slices))
    expected = {f"memory of {u}": Memory(m[0] * MIB, 0, m[1] * MIB) for u, m in slices.items()}
    assert of_gpus(metrics({GPUS[0]: (0, 0)})) == expected
    assert of_gpus(None) == expected
    assert host.gpu_memory("none") == {}


@pytest.mark.parametrize("can_split", [True, False])
def test_only_gpus_that_the_server_sees_are_read(
    monkeypatch: pytest.MonkeyPatch, can_split: bool
) -> None:
    cards = FakeNvml({GPUS[0]: (7, 80)}, {GPUS[1]: (9, 80)}, can_split=can_split)
    driver(monkeypatch, cards)
    stale = metrics({GPUS[1]: (5, 80)})
    assert of_gpus(stale) == {f"memory of {GPUS[1]}": Memory(9 * MIB, 0, 80 * MIB)}
    assert len(of_gpus(None)) == 2
    assert host.gpu_memory((0,)) == {GPUS[0]: (7 * MIB, 80 * MIB)}


def test_without_a_driver_the_first_metrics_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver(monkeypatch, None)
    monkeypatch.setattr(memory.time, "sleep", lambda _: None)
    texts = [metrics({GPUS[0]: (0, 0)}), metrics({GPUS[0]: (0, 0)}), metrics({GPUS[0]: (5, 80)})]
    assert of_gpus(texts[0]) == {}
    in_use = read_memory(lambda: texts.pop(0), Place.CONTAINER, "all", patient=True)
    assert in_use[f"memory of {GPUS[0]}"] == Memory(5 * MIB, 0, 80 * MIB)
    assert texts == []


@pytest.mark.parametrize("version", memory._LIMITS)
def test_the_limit_of_a_container_is_its_machines_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: tuple[str, str, str]
) -> None:
    limit, current, statistics = (tmp_path / name for name in version)
    limit.parent.mkdir(exist_ok=True)
    limit.write_text(f"{256 * MIB}\n")
    current.write_text(f"{100 * MIB}\n")
    statistics.write_text(f"anon 1\ninactive_file {20 * MIB}\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_processes", lambda _: [])  # others of this test's own
    in_use = read_memory(lambda: None, Place.HERE, "none")
    assert in_use[MACHINE].total_bytes == 256 * MIB
    assert (in_use[MACHINE].taken_bytes, in_use[MACHINE].others_bytes) == (0, 80 * MIB)
    assert in_use[SHM].total_bytes > 0
    limit.write_text("max\n")
    assert read_memory(lambda: None, Place.HERE, "none")[MACHINE].total_bytes > 256 * MIB


def test_of_a_server_elsewhere_nothing_of_this_machine_is_read() -> None:
    def gone() -> Metrics:
        raise ServerGoneError("reading the metrics: refused")

    assert read_memory(lambda: None, Place.ELSEWHERE, "all") == {}
    assert read_memory(gone, Place.ELSEWHERE, "all") == {}


def test_memory_in_use_before_the_server_is_the_neighbours() -> None:
    empty, now = Memory(300, 5000, 16000), Memory(4300, 5100, 16000)
    in_use = taken({MACHINE: now, SHM: now}, {MACHINE: empty})
    assert in_use == {MACHINE: Memory(4000, 5300, 16000)}
    assert in_use[MACHINE].free_bytes == 10700
    assert taken({MACHINE: empty}, {MACHINE: now})[MACHINE].taken_bytes == 0
