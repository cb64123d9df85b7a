"""Unit tests touch nothing outside: starting a process or opening a socket raises."""

from __future__ import annotations

import socket
import subprocess
from typing import Any

import pytest
import scipy.special  # noqa: F401  asks lscpu, before processes are refused


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
    monkeypatch.setattr("tuner.steps.machine_lock.registry", lambda: alone)


@pytest.fixture(autouse=True)
def _has_perf_analyzer(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is on every machine, whatever is installed there."""
    monkeypatch.setattr("tuner.steps.job.has_perf_analyzer", lambda *_: True)
