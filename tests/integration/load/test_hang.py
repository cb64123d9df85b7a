"""A server that stops answering in the middle of a run. It never quite recovers: it has its own."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.load_bench import Bench, started

from tuner.errors import ServerGoneError
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window
from tuner.server.binaries import Installation
from tuner.triton.local import LocalServer

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture
def bench(program: Installation, tmp_path: Path) -> Iterator[Bench]:
    with started(program, tmp_path) as bench:
        yield bench


def test_a_server_that_hangs_is_gone(bench: Bench) -> None:
    assert isinstance(bench.server, LocalServer)
    window = Window(duration_s=1.0, warmup_s=0.3, deadline_s=2.5, tail_s=0.2)
    hang = threading.Timer(0.6, os.kill, (bench.server.pid, signal.SIGSTOP))
    hang.start()
    try:
        with pytest.raises(ServerGoneError, match="stopped answering"):
            bench.generator("plain").measure(LoadPoint(Arrivals.POISSON, 40.0), window, seed=1)
    finally:
        hang.join()
        os.kill(bench.server.pid, signal.SIGCONT)
