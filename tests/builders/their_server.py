"""A tritonserver that somebody else started, as mode remote finds it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from contract.server_contract import eventually

from tuner.machine import process
from tuner.machine.process import ADDRESS, free_ports
from tuner.server import health
from tuner.server.server import Endpoints
from tuner.triton.local import SHM, LocalLauncher

WITHOUT_METRICS = "--allow-metrics=false"


@contextmanager
def their_server(launcher: LocalLauncher, *args: str) -> Iterator[Endpoints]:
    """One with other arguments behind the usual ones, once it can be asked for all that it has."""
    prefix = f"tune-test-{os.getpid()}-"
    with free_ports(3) as ports:
        usual = launcher.command((), repository=launcher.repository, ports=ports, shm_prefix=prefix)
    endpoints = Endpoints(*(f"{ADDRESS}:{port}" for port in ports))
    with process.child(
        [*usual, *args],
        env=launcher.installation.environment,
        stdout=subprocess.DEVNULL,
        leftovers=[f"{SHM}/{prefix}*"],
    ):
        eventually(lambda: health.ready(endpoints), 60)
        # It says that it is ready before it listens for questions about its metrics.
        if WITHOUT_METRICS not in args:
            eventually(lambda: _listens(ports[-1]), 60)
        yield endpoints


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((ADDRESS, port)) == 0
