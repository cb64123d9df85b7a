"""What benches do in tests; by name, since a bench of Ray is another process."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from builders.waits import wait_until

from tuner.fleet import Bench, BenchPlace, Heard, Post
from tuner.fleet_on_ray import RayFleet, ray_fleet
from tuner.machine.process import child
from tuner.machine.stop import Stop
from tuner.run import bench_side, on_benches, series
from tuner.spec.mistakes import Mistake, SpecMistakesError

TESTS = Path(__file__).parents[1]
SLEEP = ["/bin/sleep", "600"]
#: How long the work `wait` takes.
WAIT_S = 600.0
MISTAKE = Mistake("spec.yaml", 3, 7, "slo", "no such metric")


def end_a_child(_: object) -> int:
    with child(SLEEP, env=dict(os.environ), stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: is_sleeping(process.pid))
        process.send_signal(signal.SIGINT)
        return process.wait(30)


def is_sleeping(pid: int) -> bool:
    """Whether a child has become its command."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(SLEEP[0].encode())


def listen(_: object) -> bool:
    stop = Stop()
    with stop.listening():
        signal.raise_signal(signal.SIGINT)
    return stop.requested


def mistaken(_: object) -> None:
    raise SpecMistakesError([MISTAKE])


@contextmanager
def ray_of_tests(heard: Heard, stop: Stop) -> Iterator[RayFleet]:
    """A Ray of its own whose benches import these builders; no process of it is left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{TESTS}{os.pathsep}{TESTS.parent}")
        with ray_fleet(None, heard, stop) as fleet:
            yield fleet
    forget_processes_of_ray()


@contextmanager
def versatile(place: BenchPlace, post: Post, log: Path | None) -> Iterator[Bench]:
    """Does what its work names; ``log`` gets a line when it opens and when it closes."""

    def logged(word: str) -> None:
        if log is not None:
            with log.open("a") as file:
                file.write(f"{word}\n")

    def stopped(_: object) -> bool:
        while not post.stop.requested:
            time.sleep(0.05)
        return True

    def start_a_child(sleep_s: float) -> int:
        process = stack.enter_context(child(SLEEP, env=dict(os.environ), stdout=subprocess.DEVNULL))
        time.sleep(sleep_s)
        return process.pid

    def die_once(mark: Path) -> str:
        if not mark.exists():
            mark.touch()
            process = start_a_child(0.5)
            mark.write_text(str(process))
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    works: Mapping[str, Callable[[Any], Any]] = {
        "echo": lambda value: value,
        "tell": post.send,
        "mistaken": mistaken,
        "divide": lambda value: 1 / value,
        "place": lambda _: (place, sorted(os.sched_getaffinity(0))),
        "state": lambda _: (sorted(os.sched_getaffinity(0)), Path.cwd(), dict(os.environ)),
        "pid": lambda _: os.getpid(),
        "stopped": stopped,
        "end a child": end_a_child,
        "start a child": start_a_child,
        "die once": die_once,
        "die": lambda _: os.kill(os.getpid(), signal.SIGKILL),
        "listen": listen,
        "report": lambda file: Path(file).write_text(f"{os.getpid()} {start_a_child(0.0)}"),
        "wait": lambda _: time.sleep(WAIT_S),
    }
    logged("opened")
    with ExitStack() as stack:
        yield lambda work: works[work[0]](work[1])
    logged("closed")


@contextmanager
def emulated(place: BenchPlace, post: Post, work: Any) -> Iterator[Bench]:
    """A bench for a spec of a series, with all programs emulated."""
    from builders.emulated_tune import emulate

    emulate()
    with series.tuned(place, post, work) as bench:
        yield bench


@contextmanager
def emulated_bench(place: BenchPlace, post: Post, given: Any) -> Iterator[Bench]:
    """A bench of a run, with all programs emulated."""
    from builders.emulated_tune import emulate

    emulate()
    with bench_side.measuring(place, post, given) as bench:
        yield bench


def forget_processes_of_ray() -> None:
    """Ray ends them and does not wait for them, which Python warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def main() -> None:
    """`tune` whose benches are emulated, on Ray too."""
    from builders.emulated_tune import main as tune

    series.tuned, on_benches.measuring = emulated, emulated_bench
    sys.exit(tune())
