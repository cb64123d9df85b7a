"""What runs in the actors of Ray beside a run: each bench, and the board between benches and run.

Each actor is a process, perhaps on another machine. The arguments and results of an actor's methods
travel between processes: functions by their name, the rest as values.
"""

from __future__ import annotations

import os
import pickle
import platform
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tuner.errors import EnvironmentNotReadyError, TunerError
from tuner.fleet import Bench, BenchPlace, Need, Opener, Post, as_tuner_error
from tuner.machine.cpus import by_core, named
from tuner.machine.process import boot_id
from tuner.machine.stop import Stop

#: The namespace of the actors' names.
NAMESPACE = "tune"
#: Period at which a bench looks for its node and for a stop, and waits for CPUs, in seconds.
LOOK_S = 0.5


class Board:
    """An actor beside the run: messages of benches, the stop request, and who has which CPUs."""

    def __init__(self) -> None:
        self._said = list[tuple[str, object]]()
        self._cpus: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._stopping = False

    def send(self, bench: str, what: object) -> None:
        self._said.append((bench, what))

    def take(self, stopping: bool) -> list[tuple[str, object]]:
        """Returns the messages since the last call, and shows benches whether to stop."""
        said, self._said = self._said, []
        self._stopping = stopping
        return said

    def stopping(self) -> bool:
        return self._stopping

    def claim(
        self, bench: str, machine: str, usable: Sequence[int], need: Need
    ) -> tuple[int, ...] | None:
        """Reserves CPUs that no other bench of the machine has; None while too few are free.

        Args:
            machine: Id of the bench's machine.
            usable: Numbers of the CPUs that the bench may use there, in order of preference.
        """
        self._cpus.pop(bench, None)  # of the process that Ray has started again
        taken = {cpu for at, cpus in self._cpus.values() if at == machine for cpu in cpus}
        free = [cpu for cpu in need.named or usable if cpu not in taken]
        if len(free) < need.cpus:
            return None
        self._cpus[bench] = machine, tuple(sorted(free[: need.cpus]))
        return self._cpus[bench][1]

    def free(self, bench: str) -> None:
        self._cpus.pop(bench, None)


class RayBench:
    """An actor that is one bench. It has one thread, so that signals reach `Stop`."""

    def __init__(self, name: str, board: str, need: Need, opener: Opener, argument: object) -> None:
        import ray

        # Ray blocks SIGINT, and child processes would inherit that. The run handles Ctrl-C.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        self._name, self._need = name, need
        self._board = ray.get_actor(board, NAMESPACE)
        self._opener, self._argument = opener, argument
        self._stop = Stop()
        self._stack = ExitStack()
        self._bench: Bench | None = None
        threading.Thread(target=self._watch, daemon=True).start()

    def do(self, work: object) -> tuple[Any, TunerError | None]:
        """The result, or the error: Ray would wrap an exception in one of its own classes."""
        try:
            if self._bench is None:
                post = Post(self._send, self._stop)
                place = self._place()
                self._send(place)
                opened = self._opener(place, post, self._argument)
                self._bench = self._stack.enter_context(opened)
            return self._bench(work), None
        except Exception as error:
            return None, as_tuner_error(error)

    def close(self) -> None:
        self._stack.close()

    def _send(self, what: object) -> None:
        pickle.dumps(what)  # fails here, with a traceback to the sender
        self._board.send.remote(self._name, what)

    def _place(self) -> BenchPlace:
        """Reserves CPUs for this process and its children, and returns where the bench works."""
        import ray

        usable = sorted(os.sched_getaffinity(0))
        if lacking := set(self._need.named) - {*usable}:
            raise EnvironmentNotReadyError(
                f"the spec names {named(lacking)}, which {platform.node()} does not have",
                f"name some of {named(usable)}",
            )
        claim = self._name, boot_id(), by_core(usable), self._need
        while (cpus := ray.get(self._board.claim.remote(*claim))) is None:
            time.sleep(LOOK_S)
        os.sched_setaffinity(0, cpus)
        ids = [str(gpu) for gpu in ray.get_gpu_ids()]
        if not all(number.isdigit() for number in ids):
            raise EnvironmentNotReadyError(
                f"Ray identifies a GPU of {platform.node()} as {ids[0]}; tune needs GPU numbers",
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
        """Ends this process and its children when the node is gone; asks the board for a stop."""
        import ray

        raylet, looked = int(os.environ["RAY_RAYLET_PID"]), time.monotonic()
        while os.getppid() == raylet:
            time.sleep(LOOK_S)
            if not self._stop.requested and time.monotonic() - looked > 2 * LOOK_S:
                looked = time.monotonic()
                with suppress(ray.exceptions.RayError):
                    self._stop.requested = bool(ray.get(self._board.stopping.remote(), timeout=5))
        os._exit(1)
