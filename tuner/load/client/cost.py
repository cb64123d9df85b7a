"""CPU time per request of tune's client, measured against a server that answers at once.

``python -m tuner.load.client.cost PROTOCOL BYTES`` prints that time in seconds. TLS, headers and
the bytes of answers add to it, and so do wake-ups for single requests at low rates.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from tuner.errors import LoadFailedError
from tuner.load.client.calls import Done, calls_over
from tuner.load.client.job import Outcome
from tuner.load.client.process import Loop, precise_loop
from tuner.machine.process import ADDRESS, child
from tuner.spec.workload import Protocol

#: Requests in flight, duration of the load, and the longest wait for the last answers.
_CLIENTS, _DURATION_S, _AT_MOST_S = 8, 0.5, 60.0
#: Smaller requests cost as much as the first size; larger ones cost as much per byte as the second.
_LEAST_BYTES, _MOST_BYTES = 1000, 16 << 20
_HTTP_HEAD = "POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: {}\r\n\r\n"
#: Seconds by size, protocol and CPUs.
_known: dict[tuple[int, Protocol, tuple[int, ...]], float] = {}


def request_cost_s(
    size_bytes: int, protocol: Protocol, cpus: Sequence[int], environment: Mapping[str, str]
) -> float:
    """CPU seconds per request of about this size; measured once, in about two seconds.

    Args:
        protocol: gRPC or HTTP.
        cpus: CPUs that the client may use; empty: any.
        environment: Environment of the processes that this starts.

    Raises:
        LoadFailedError: The processes failed on this machine.
    """
    size = round(float(f"{min(max(size_bytes, _LEAST_BYTES), _MOST_BYTES):.2g}"))
    key = size, protocol, tuple(cpus)
    if key not in _known:
        _known[key] = _measured_s(size, protocol, cpus, environment)
    return _known[key] * max(size_bytes / _MOST_BYTES, 1.0)


def _measured_s(
    size_bytes: int, protocol: Protocol, cpus: Sequence[int], environment: Mapping[str, str]
) -> float:
    command = (sys.executable, "-P", "-m", __name__, protocol.value, str(size_bytes))
    with child(command, env=environment, stdout=subprocess.PIPE, cpus=cpus) as process:
        try:
            said, _ = process.communicate(timeout=2.0 * _AT_MOST_S)
        except subprocess.TimeoutExpired as error:
            raise _failed("no figures in time") from error
    words = said.decode(errors="replace").splitlines() or [f"exit code {process.returncode}"]
    if process.returncode:
        raise _failed(words[-1])
    return float(words[-1])


def _failed(why: str) -> LoadFailedError:
    return LoadFailedError(f"the cost of a request in tune's own client cannot be measured: {why}")


async def _cpu_s(address: str, protocol: Protocol, request: bytes) -> float:
    calls = calls_over(protocol, address, None, {})
    await calls.connect()
    until = time.monotonic() + _DURATION_S

    def send(request: bytes, done: Done) -> None:
        def answered(outcome: Outcome, words: str) -> None:
            if time.monotonic() >= until:
                load.stop()
            done(outcome, words)

        calls.send(request, answered)

    load = Loop(send, [request], _AT_MOST_S, clients=_CLIENTS)
    reply = await load.run()
    await calls.close()
    return reply.cpu_s / reply.numbers.size


def main(protocol: Protocol, size_bytes: int) -> None:
    head = _HTTP_HEAD.format(size_bytes) if protocol.over_http else ""
    request = head.encode() + bytes(size_bytes)
    command = (sys.executable, "-P", "-m", "tuner.load.client.null_server", protocol.value)
    with child(command, env=os.environ, stdout=subprocess.PIPE) as server:
        port = b"" if server.stdout is None else server.stdout.readline()
        address = f"{ADDRESS}:{int(port)}"
        with asyncio.Runner(loop_factory=precise_loop) as runner:
            sys.stdout.write(str(runner.run(_cpu_s(address, protocol, request))))


if __name__ == "__main__":
    main(Protocol(sys.argv[1]), int(sys.argv[2]))
