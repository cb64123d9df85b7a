"""Benches on the nodes of a Ray cluster, or of a Ray that is started on this machine for a run.

What a bench is given and returns travels to another process, perhaps of another machine: functions
by their name, the rest as values.
"""

from __future__ import annotations

import os
import pickle
import platform
import secrets
import signal
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tuner.errors import EnvironmentNotReadyError, InterruptedRunError, TunerError
from tuner.fleet import (
    Bench,
    BenchLostError,
    BenchPlace,
    Done,
    Heard,
    Need,
    Opener,
    Post,
    as_tuner_error,
)
from tuner.machine.cpus import by_core, named
from tuner.machine.process import boot_id
from tuner.machine.stop import Stop

#: How long a cluster may take to answer a connection.
CONNECT_S = 2.0
#: How often a bench looks whether its node and its run still want it, and a run what benches said.
_LOOK_S = 0.5
#: A bench that has nothing to do closes within it, else it is killed.
_CLOSE_S = 10.0
_NAMESPACE = "tune"
_STORE_BYTES = 80 << 20  # the least that Ray takes: what travels here is small
#: The name of a socket has at most 107 bytes, of which Ray adds up to 75 to the directory.
_MAX_TMPDIR_BYTES = 32
#: For a Ray that is started here. Benches are neither slower nor killed sooner than other
#: processes: Ray would run them at nice +15, and kill all of a node when memory is short.
_OURS = {"worker_niceness": 0, "worker_oom_score_adjustment": 0, "memory_monitor_refresh_ms": 0}


@contextmanager
def ray_fleet(address: str | None, heard: Heard, stop: Stop) -> Iterator[RayFleet]:
    """A fleet on a Ray of its own, or on the cluster at ``address`` (``HOST:PORT``).

    Ray replaces the handler of SIGTERM: enter it before `Stop.listening`. All benches are gone
    afterwards, and a Ray of its own too.

    Raises:
        EnvironmentNotReadyError: There is no such cluster, or Ray cannot be started.
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
    """For Ray's import: a token, no usage reports, and a directory that is short enough."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if started_here and not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    if started_here and len(os.fsencode(tempfile.gettempdir())) > _MAX_TMPDIR_BYTES:
        os.environ.setdefault("RAY_TMPDIR", "/tmp")  # noqa: S108 - Ray's default


def _join(ray: Any, address: str | None) -> None:
    # What it prints of benches that died, on stdout, whatever ``log_to_driver`` says.
    ray._private.worker.print_to_stdstream = lambda *_, **__: None
    common = {"log_to_driver": False, "logging_level": "ERROR"}
    cpus = len(os.sched_getaffinity(0))
    local = {"num_cpus": cpus, "object_store_memory": _STORE_BYTES, "_system_config": _OURS}
    try:
        if address:
            ray.init(address=address, **common)
        else:
            _start(ray, {"address": "local", "include_dashboard": False, **common, **local})
    except Exception as error:  # Ray raises plain ones too
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
    """Starts Ray; once more where its processes took longer than the 30 s that Ray allows."""
    try:
        ray.init(**arguments)
    except Exception as error:
        if "timed out" not in str(error):
            raise
        ray.shutdown()
        ray.init(**arguments)


def refuse_unreachable(address: str) -> None:
    """EnvironmentNotReadyError unless something listens there: Ray would try for 14 minutes."""
    host, _, port = address.rpartition(":")
    hint = "RAY_ADDRESS is HOST:PORT of the cluster's head node (`ray status` there shows it)"
    if not host or not port.isdigit() or "/" in address:
        raise EnvironmentNotReadyError(f"RAY_ADDRESS is {address!r}, not HOST:PORT", hint)
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        text = f"no Ray cluster answers at {address}: {error}"
        raise EnvironmentNotReadyError(text, hint) from error


class RayFleet:
    """An actor for each bench. A bench whose process dies is started again, and its work too."""

    most = None

    def __init__(self, ray: Any, heard: Heard, stop: Stop) -> None:
        self._ray, self._heard, self._stop = ray, heard, stop
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        # By name: a handle among its arguments may be lost when a bench is started again.
        self._named = f"tune-{secrets.token_hex(8)}"
        made = ray.remote(_Board).options(
            name=self._named, namespace=_NAMESPACE, num_cpus=0, scheduling_strategy=here
        )
        self._board = made.remote()
        self._actors: dict[str, Any] = {}
        self._works: dict[Any, tuple[str, object]] = {}
        self._again: deque[tuple[str, object]] = deque()
        self._retried: set[str] = set()
        self._opened: set[str] = set()
        self._staying: set[str] = set()
        self._node_of: dict[str, str] = {}
        self._stopping = False

    def __enter__(self) -> RayFleet:
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._ray.kill(self._board)

    def need(self, gpus: int | None, cpus: Sequence[int] = (), beside: int | None = None) -> Need:
        has = self._resources()
        if gpus is None:
            gpus = int(any(node.get("GPU", 0) for node in has))
        fitting = [node for node in has if node.get("GPU", 0) >= gpus and node.get("CPU", 0) >= 1]
        if not gpus:  # nodes with GPUs are for those who need them
            fitting = [node for node in fitting if not node.get("GPU")] or fitting
        if not fitting:
            most = max((int(node.get("GPU", 0)) for node in has), default=0)
            raise EnvironmentNotReadyError(
                f"no node of the Ray cluster has {gpus} GPUs: the most is {most}",
                "lower server.gpus in the spec, or add such a node",
            )
        if gpus or beside is None:
            share = min(int(n["CPU"] * (gpus / n["GPU"] if gpus else 1)) for n in fitting)
        else:
            shares = range(int(max(n["CPU"] for n in fitting)), 1, -1)
            enough = (s for s in shares if sum(int(n["CPU"]) // s for n in fitting) >= beside)
            share = next(enough, 1)
        count = len(cpus) or max(share, 1)
        if count > (most := max(int(node["CPU"]) for node in fitting)):
            raise EnvironmentNotReadyError(
                f"no node of the Ray cluster has {count} CPUs: the most is {most}",
                "name fewer in server.cpus and workload.cpus of the spec",
            )
        return Need(gpus, count, tuple(cpus))

    def room(self, need: Need) -> int:
        count = 0
        for node in self._resources():
            fits = int(node.get("CPU", 0)) // need.cpus
            fits = min(fits, int(node.get("GPU", 0)) // need.gpus) if need.gpus else fits
            count += min(fits, 1) if need.named else fits
        return count

    def _resources(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def open(self, bench: str, opener: Opener, argument: object, need: Need) -> None:
        made = self._ray.remote(_RayBench).options(
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
            if not self._works:  # what memory was too short for, one after the other
                self.submit(*self._again.popleft())
            ready, _ = self._ray.wait([*self._works], timeout=_LOOK_S)
            self._listen()
            if (lost := self._lost_with_its_node()) is not None:
                return lost
            for reference in ready:
                bench, work = self._works.pop(reference)
                if (done := self._ended(bench, work, reference)) is not None:
                    return done
            for reference, (bench, _) in [*self._works.items()] * self._stop.requested:
                if bench not in self._opened:
                    del self._works[reference]
                    return Done(bench, error=InterruptedRunError("interrupted"))

    def _listen(self) -> None:
        if self._stop.requested and not self._stopping:
            self._stopping = True
            self._board.stop.remote()
        for bench, what in self._ray.get(self._board.take.remote()):
            self._opened.add(bench)
            if isinstance(what, BenchPlace):
                self._node_of[bench] = what.node
            self._heard(bench, what)

    def _lost_with_its_node(self) -> Done | None:
        """A bench that would wait for room on another node."""
        if not self._staying & self._node_of.keys():
            return None
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        for reference, (bench, _) in self._works.items():
            if bench in self._staying and self._node_of.get(bench, "") not in {"", *alive}:
                del self._works[reference]
                error = BenchLostError(f"the bench of {bench} is lost: its node is gone")
                return Done(bench, error=error)
        return None

    def _ended(self, bench: str, work: object, reference: Any) -> Done | None:
        """None where it is to be tried once more, when nothing else is under way."""
        exceptions = self._ray.exceptions
        try:
            value, error = self._ray.get(reference)
            self._listen()  # what it said before
            return Done(bench, value, error)
        except exceptions.OutOfMemoryError as error:
            # Of other benches of the node too, and Ray does not say whose server grew: it counts
            # the memory of a bench without that of its children. So each is tried alone.
            if bench not in self._retried:
                self._retried.add(bench)
                self._again.append((bench, work))
                return None
            what = "its node ran out of memory, twice"
            return Done(bench, error=self._lost(bench, what, error))
        except exceptions.RayActorError as error:
            what = "its process or its node died, and died again when it was tried once more"
            return Done(bench, error=self._lost(bench, what, error))
        except exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, TunerError):
                return Done(bench, error=cause)
            return Done(bench, error=TunerError(f"a defect of a bench: {cause or error!r}"))

    def _lost(self, bench: str, cause: str, error: Exception) -> BenchLostError:
        reason = str(error).strip().splitlines()[-1]
        return BenchLostError(f"the bench of {bench} is lost: {cause} ({reason})")

    def close(self, bench: str) -> None:
        actor = self._actors.pop(bench)
        with suppress(self._ray.exceptions.RayError):
            if all(name != bench for name, _ in self._works.values()) and bench in self._opened:
                self._ray.get(actor.close.remote(), timeout=_CLOSE_S)
        self._ray.kill(actor)
        self._ray.get(self._board.free.remote(bench))


class _Board:
    """An actor beside the run: what benches say, whether they are to stop, who has which CPUs."""

    def __init__(self) -> None:
        self._said = list[tuple[str, object]]()
        self._cpus: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._stopping = False

    def tell(self, bench: str, what: object) -> None:
        self._said.append((bench, what))

    def take(self) -> list[tuple[str, object]]:
        said, self._said = self._said, []
        return said

    def stop(self) -> None:
        self._stopping = True

    def stopping(self) -> bool:
        return self._stopping

    def claim(
        self, bench: str, machine: str, usable: Sequence[int], need: Need
    ) -> tuple[int, ...] | None:
        """CPUs that no other bench of the machine has; None while there are too few."""
        self._cpus.pop(bench, None)  # its predecessor's
        taken = {cpu for at, cpus in self._cpus.values() if at == machine for cpu in cpus}
        free = [cpu for cpu in need.named or usable if cpu not in taken]
        if len(free) < need.cpus:
            return None
        self._cpus[bench] = machine, tuple(sorted(free[: need.cpus]))
        return self._cpus[bench][1]

    def free(self, bench: str) -> None:
        self._cpus.pop(bench, None)


class _RayBench:
    """An actor of one thread, so that signals reach `Stop` in it; it does one work at a time."""

    def __init__(self, name: str, board: str, need: Need, opener: Opener, argument: object) -> None:
        import ray

        # Ray blocks it, and a child would inherit that. Ctrl-C is the run's to hear.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        self._name, self._need = name, need
        self._board = ray.get_actor(board, _NAMESPACE)
        self._opener, self._argument = opener, argument
        self._stop = Stop()
        self._stack = ExitStack()
        self._bench: Bench | None = None
        threading.Thread(target=self._watch, daemon=True).start()

    def do(self, work: object) -> tuple[Any, TunerError | None]:
        """What came of it; nothing is raised, since Ray would make another error of that."""
        try:
            if self._bench is None:
                post = Post(self._tell, self._stop)
                place = self._place()
                self._tell(place)
                opened = self._opener(place, post, self._argument)
                self._bench = self._stack.enter_context(opened)
            return self._bench(work), None
        except Exception as error:
            return None, as_tuner_error(error)

    def close(self) -> None:
        self._stack.close()

    def _tell(self, what: object) -> None:
        pickle.dumps(what)  # here, with a trace to who said it
        self._board.tell.remote(self._name, what)

    def _place(self) -> BenchPlace:
        """Takes CPUs for itself and all that it starts; the process ends with the bench."""
        import ray

        usable = sorted(os.sched_getaffinity(0))
        if lacking := set(self._need.named) - {*usable}:
            raise EnvironmentNotReadyError(
                f"the spec names {named(lacking)}, which {platform.node()} does not have",
                f"name some of {named(usable)}",
            )
        claim = self._name, boot_id(), by_core(usable), self._need
        while (cpus := ray.get(self._board.claim.remote(*claim))) is None:
            time.sleep(_LOOK_S)
        os.sched_setaffinity(0, cpus)
        ids = [str(gpu) for gpu in ray.get_gpu_ids()]
        if not all(number.isdigit() for number in ids):
            raise EnvironmentNotReadyError(
                f"Ray calls a GPU of {platform.node()} {ids[0]}, and tune knows them by number",
                "start Ray there without UUIDs in CUDA_VISIBLE_DEVICES",
            )
        return BenchPlace(
            platform.node(),
            tuple(map(int, ids)) if self._need.gpus else None,
            cpus,
            os.getpriority(os.PRIO_PROCESS, 0),
            int(Path("/proc/self/oom_score_adj").read_text()),
            ray.get_runtime_context().get_node_id(),
        )

    def _watch(self) -> None:
        """Ends this process, and so all that it started, with its node; hears the run's stop."""
        import ray

        raylet, looked = int(os.environ["RAY_RAYLET_PID"]), time.monotonic()
        while os.getppid() == raylet:
            time.sleep(_LOOK_S)
            if not self._stop.requested and time.monotonic() - looked > 2 * _LOOK_S:
                looked = time.monotonic()
                with suppress(ray.exceptions.RayError):
                    self._stop.requested = bool(ray.get(self._board.stopping.remote(), timeout=5))
        os._exit(1)
