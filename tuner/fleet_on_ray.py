"""Benches on the nodes of a Ray cluster, or on a Ray that `tune` starts on this machine for a run.

`tuner.bench_on_ray` has what runs in the processes of the benches.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

from tuner.bench_on_ray import LOOK_S, NAMESPACE, Board, RayBench
from tuner.errors import EnvironmentNotReadyError, InterruptedRunError, TunerError
from tuner.fleet import (
    BenchLostError,
    BenchPlace,
    Done,
    Heard,
    Need,
    Opener,
)
from tuner.machine.stop import Stop

#: Timeout of a connection to the cluster's head node.
CONNECT_S = 2.0
#: An idle bench that does not close within this time is killed.
_CLOSE_S = 10.0
_STORE_BYTES = 80 << 20  # Ray's minimum; arguments and results are small
#: A socket's path has at most 107 bytes; Ray appends up to 75 bytes to the directory.
_MAX_TMPDIR_BYTES = 32
#: Options of a Ray that `tune` starts. By default Ray runs benches at nice +15, and kills all of
#: them on a node that is short of memory.
_OURS = {"worker_niceness": 0, "worker_oom_score_adjustment": 0, "memory_monitor_refresh_ms": 0}


@contextmanager
def ray_fleet(address: str | None, heard: Heard, stop: Stop) -> Iterator[RayFleet]:
    """A fleet on the cluster at ``address`` (``HOST:PORT``), or on a Ray that this call starts.

    Ray replaces the handler of SIGTERM: enter this context before `Stop.listening`. On leaving the
    context, all benches end, and so does a Ray that this call started.

    Raises:
        EnvironmentNotReadyError: No cluster answers there, or Ray does not start.
    """
    if address is not None:
        refuse_unreachable(address)
    _settle_environment(started_here=address is None)
    import ray

    before = signal.getsignal(signal.SIGTERM)
    with ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGTERM, before)
        stack.callback(ray.shutdown)
        _join(ray, address)
        yield stack.enter_context(RayFleet(ray, heard, stop))


def _settle_environment(*, started_here: bool) -> None:
    """Sets what Ray reads on import: a token, no usage reports, a directory with a short path."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if started_here and not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    if started_here and len(os.fsencode(tempfile.gettempdir())) > _MAX_TMPDIR_BYTES:
        os.environ.setdefault("RAY_TMPDIR", "/tmp")  # noqa: S108 - Ray's default


def _join(ray: Any, address: str | None) -> None:
    # Ray prints about benches that died on stdout, whatever ``log_to_driver`` says.
    ray._private.worker.print_to_stdstream = lambda *_, **__: None
    common = {"log_to_driver": False, "logging_level": "ERROR"}
    cpus = len(os.sched_getaffinity(0))
    local = {"num_cpus": cpus, "object_store_memory": _STORE_BYTES, "_system_config": _OURS}
    try:
        if address:
            ray.init(address=address, **common)
        else:
            _start(ray, {"address": "local", "include_dashboard": False, **common, **local})
    except Exception as error:  # Ray also raises plain exceptions
        where = f"join the Ray cluster at {address}" if address else "start Ray"
        raise EnvironmentNotReadyError(
            f"cannot {where}: {str(error).strip().splitlines()[0]}",
            "every node needs the same versions of Ray, Python and tune, and the same token "
            "(RAY_AUTH_TOKEN); run tune on a node of the cluster"
            if address
            else "Ray gives its processes 30 s to start: stop what keeps the machine busy, or run "
            "without --on ray",
        ) from error


def _start(ray: Any, arguments: dict[str, Any]) -> None:
    """Starts Ray; tries again if its processes took longer than the 30 s that Ray allows."""
    try:
        ray.init(**arguments)
    except Exception as error:
        if "timed out" not in str(error):
            raise
        ray.shutdown()
        ray.init(**arguments)


def refuse_unreachable(address: str) -> None:
    """Raises EnvironmentNotReadyError if nothing listens there: Ray would try for 14 minutes."""
    host, _, port = address.rpartition(":")
    hint = "RAY_ADDRESS is HOST:PORT of the cluster's head node (`ray status` there shows it)"
    if not host or not port.isdigit() or "/" in address:
        raise EnvironmentNotReadyError(f"RAY_ADDRESS is {address!r}, not HOST:PORT", hint)
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        text = f"no Ray cluster answers at {address}: {error}"
        raise EnvironmentNotReadyError(text, hint) from error


class _Node(NamedTuple):
    gpus: int
    cpus: int


class RayFleet:
    """One actor for each bench. Ray restarts a bench whose process dies, with its work, once."""

    most = None

    def __init__(self, ray: Any, heard: Heard, stop: Stop) -> None:
        self._ray, self._heard, self._stop = ray, heard, stop
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        # Benches look the board up by name: a restarted bench may lose a handle to it.
        self._named = f"tune-{secrets.token_hex(8)}"
        made = ray.remote(Board).options(
            name=self._named, namespace=NAMESPACE, num_cpus=0, scheduling_strategy=here
        )
        self._board = made.remote()
        self._actors: dict[str, Any] = {}
        self._works: dict[Any, tuple[str, object]] = {}
        self._again: deque[tuple[str, object]] = deque()
        self._retried: set[str] = set()
        self._staying: set[str] = set()
        self._node_of: dict[str, str] = {}  # by bench, from when it is open

    def __enter__(self) -> RayFleet:
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._ray.kill(self._board)

    def need(self, gpus: int | None, cpus: Sequence[int] = (), beside: int | None = None) -> Need:
        nodes = self._nodes()
        if gpus is None:
            gpus = int(any(node.gpus for node in nodes))
        fitting = [node for node in nodes if node.gpus >= gpus and node.cpus]
        if not gpus:  # nodes with GPUs are for benches that need GPUs
            fitting = [node for node in fitting if not node.gpus] or fitting
        if not fitting:
            most = max((node.gpus for node in nodes), default=0)
            raise EnvironmentNotReadyError(
                f"no node of the Ray cluster has {gpus} GPUs: the most is {most}",
                "lower server.gpus in the spec, or add such a node",
            )
        sizes = [node.cpus for node in fitting]
        if gpus:
            share = min(node.cpus * gpus // node.gpus for node in fitting)
        elif beside is None:
            share = min(sizes)
        else:
            shares = range(max(sizes), 1, -1)
            share = next((s for s in shares if sum(size // s for size in sizes) >= beside), 1)
        count = len(cpus) or max(share, 1)
        if count > (most := max(sizes)):
            raise EnvironmentNotReadyError(
                f"no node of the Ray cluster has {count} CPUs: the most is {most}",
                "name fewer in server.cpus and workload.cpus of the spec",
            )
        return Need(gpus, count, tuple(cpus))

    def room(self, need: Need) -> int:
        count = 0
        for node in self._nodes():
            fits = node.cpus // need.cpus
            fits = min(fits, node.gpus // need.gpus) if need.gpus else fits
            count += min(fits, 1) if need.named else fits
        return count

    def _nodes(self) -> list[_Node]:
        has = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return [_Node(int(of.get("GPU", 0)), int(of.get("CPU", 0))) for of in has]

    def open(self, bench: str, opener: Opener, argument: object, need: Need) -> None:
        made = self._ray.remote(RayBench).options(
            num_cpus=need.cpus, num_gpus=need.gpus, max_restarts=1, max_task_retries=1
        )
        self._actors[bench] = made.remote(bench, self._named, need, opener, argument)
        if not need.moves:
            self._staying.add(bench)

    def benches(self) -> Sequence[str]:
        return list(self._actors)

    def submit(self, bench: str, work: object) -> None:
        self._works[self._actors[bench].do.remote(work)] = bench, work

    def next_done(self) -> Done:
        try:
            return self._next_done()
        except SystemError as error:  # a signal's handler raised in a call of Ray
            if isinstance(error.__cause__, InterruptedRunError):
                raise error.__cause__ from None
            raise

    def _next_done(self) -> Done:
        while True:
            if not self._works:  # works that ran out of memory are tried again, one at a time
                self.submit(*self._again.popleft())
            ready, _ = self._ray.wait([*self._works], timeout=LOOK_S)
            self._listen()
            if (lost := self._lost_with_its_node()) is not None:
                return lost
            for reference in ready:
                bench, work = self._works.pop(reference)
                if (done := self._ended(bench, work, reference)) is not None:
                    return done
            for reference, (bench, _) in self._works.items():
                if self._stop.requested and bench not in self._node_of:
                    del self._works[reference]
                    return Done(bench, error=InterruptedRunError("interrupted"))

    def _listen(self) -> None:
        """Takes what benches have posted, and posts whether they are to stop."""
        for bench, what in self._ray.get(self._board.take.remote(self._stop.requested)):
            if isinstance(what, BenchPlace):
                self._node_of[bench] = what.node
            self._heard(bench, what)

    def _lost_with_its_node(self) -> Done | None:
        """Ends the work of a bench that may not move and whose node is gone, if there is one."""
        if not self._staying & self._node_of.keys():
            return None
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        for reference, (bench, _) in self._works.items():
            if bench in self._staying and self._node_of.get(bench, "") not in {"", *alive}:
                del self._works[reference]
                return _lost(bench, "its node is gone")
        return None

    def _ended(self, bench: str, work: object, reference: Any) -> Done | None:
        """How a piece of work ended; None if it is to be tried again, alone."""
        exceptions = self._ray.exceptions
        try:
            value, error = self._ray.get(reference)
            self._listen()  # its messages come before its result
            return Done(bench, value, error)
        except exceptions.OutOfMemoryError as error:
            # Ray kills any bench of the node, since it does not count the memory of children such
            # as the server. So each of the works is tried again alone.
            if bench not in self._retried:
                self._retried.add(bench)
                self._again.append((bench, work))
                return None
            return _lost(bench, "its node ran out of memory, twice", error)
        except exceptions.RayActorError as error:
            what = "its process or its node died, and died again when it was tried once more"
            return _lost(bench, what, error)
        except exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, TunerError):
                return Done(bench, error=cause)
            return Done(bench, error=TunerError(f"a defect of a bench: {cause or error!r}"))

    def close(self, bench: str) -> None:
        actor = self._actors.pop(bench)
        with suppress(self._ray.exceptions.RayError):
            if all(name != bench for name, _ in self._works.values()) and bench in self._node_of:
                self._ray.get(actor.close.remote(), timeout=_CLOSE_S)
        self._ray.kill(actor)
        self._ray.get(self._board.free.remote(bench))


def _lost(bench: str, cause: str, error: Exception | None = None) -> Done:
    words = "" if error is None else f" ({str(error).strip().splitlines()[-1]})"
    return Done(bench, error=BenchLostError(f"the bench of {bench} is lost: {cause}{words}"))
