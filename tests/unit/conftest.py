"""Unit tests touch nothing outside: starting a process or opening a socket raises."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import scipy.special  # noqa: F401  asks lscpu, before processes are refused
from builders.check_place import Place, place_in
from builders.workplace import Workplace


@pytest.fixture(autouse=True)
def _no_outside_world(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a unit test may not start a process or open a connection")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "bind", refuse)


@pytest.fixture(autouse=True)
def _no_neighbours(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What measures on this machine besides is none of a unit test's business."""
    alone = tmp_path_factory.getbasetemp() / "measuring"
    monkeypatch.setattr("tuner.prepare.machine_lock.registry", lambda: alone)


@pytest.fixture(autouse=True)
def _has_perf_analyzer(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is on every machine, whatever is installed there."""
    monkeypatch.setattr("tuner.prepare.job.has_perf_analyzer", lambda *_: True)


@pytest.fixture(autouse=True)
def _has_tritonserver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise."""
    monkeypatch.setattr("tuner.run.plan.has_tritonserver", lambda *_: True)


@pytest.fixture(autouse=True)
def _requests_have_a_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is measured with processes elsewhere."""
    monkeypatch.setattr("tuner.prepare.sending.request_cost_s", lambda *_: 0.0004)


@pytest.fixture(autouse=True)
def _cpus_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decided without a measurement."""
    monkeypatch.setattr("tuner.search.cores.may_be_first", lambda: False)


@pytest.fixture
def workplace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Workplace:
    return Workplace(tmp_path, monkeypatch, capsys)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return place_in(tmp_path, monkeypatch)
