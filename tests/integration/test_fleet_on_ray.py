"""Rules for benches on Ray: who is gone when, what a bench may use, and what is refused at once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from builders.fleets import WAIT_S, ray_of_tests, versatile
from builders.waits import wait_until

from tuner.errors import EnvironmentNotReadyError
from tuner.fleet import BenchLostError, BenchPlace, Need
from tuner.fleet_on_ray import RayFleet, ray_fleet
from tuner.machine.stop import Stop

TESTS = Path(__file__).parents[1]
pytestmark = [pytest.mark.integration, pytest.mark.long]
ONE = Need(cpus=1)


def ignore(*_: object) -> None:
    """Hears nothing."""


@pytest.fixture(scope="module")
def fleet() -> Iterator[RayFleet]:
    with ray_of_tests(ignore, Stop()) as several:
        yield several


@pytest.fixture(autouse=True)
def _closed(fleet: RayFleet) -> Iterator[None]:
    yield
    for bench in fleet.benches():
        fleet.close(bench)


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def result(fleet: RayFleet, bench: str, what: str, value: object = None) -> Any:
    if bench not in fleet.benches():
        fleet.open(bench, versatile, None, ONE)
    fleet.submit(bench, (what, value))
    done = fleet.next_done()
    assert done.error is None, done.error
    return done.value


def test_two_benches_of_a_machine_have_separate_cpus_at_the_runs_priority(
    fleet: RayFleet,
) -> None:
    both = [result(fleet, name, "place") for name in ("one", "two")]
    places: list[BenchPlace] = [place for place, _ in both]
    assert sorted(cpu for p in places for cpu in p.cpus) == sorted(os.sched_getaffinity(0))
    assert [sorted(p.cpus) for p in places] == [mask for _, mask in both]
    nice, adjusted = os.getpriority(os.PRIO_PROCESS, 0), Path("/proc/self/oom_score_adj")
    for place in places:
        assert (place.niceness, place.oom_score_adj) == (nice, int(adjusted.read_text()))
        assert place.gpus is None


def test_a_bench_that_names_its_cpus_gets_those_and_waits_for_them(fleet: RayFleet) -> None:
    last = max(os.sched_getaffinity(0))
    for name in ("one", "two"):
        fleet.open(name, versatile, None, Need(cpus=1, named=(last,)))
        fleet.submit(name, ("place", None))
    for _ in range(2):
        done = fleet.next_done()
        assert done.value[1] == [last]
        fleet.close(done.bench)


def test_a_bench_finds_nothing_of_the_one_before_it(fleet: RayFleet) -> None:
    seen = []
    for name in ("one", "two"):
        mask, directory, environment = result(fleet, name, "state")
        fleet.close(name)
        seen.append((mask, directory, {k: v for k, v in environment.items() if k != "RAY_JOB_ID"}))
    assert seen[0] == seen[1]


def test_a_killed_bench_is_started_again_and_its_work_done_once_more(
    fleet: RayFleet, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mark, log = tmp_path / "mark", tmp_path / "log"
    fleet.open("bench", versatile, log, ONE)
    fleet.submit("bench", ("die once", mark))
    done = fleet.next_done()
    assert (done.value, done.error) == ("done", None)
    assert log.read_text().split() == ["opened", "opened"]
    assert gone(int(mark.read_text()))
    assert capfd.readouterr() == ("", "")  # nothing is Ray's to say


def test_work_whose_bench_dies_twice_is_lost(fleet: RayFleet) -> None:
    fleet.open("bench", versatile, None, ONE)
    fleet.submit("bench", ("die", None))
    error = fleet.next_done().error
    assert isinstance(error, BenchLostError)
    assert "died again when it was tried once more" in error.message
    assert "\x1b" not in error.message


def test_a_busy_bench_is_ended_with_its_children(fleet: RayFleet) -> None:
    child = result(fleet, "bench", "start a child", 0.2)
    fleet.submit("bench", ("wait", None))
    begin_s = time.monotonic()
    fleet.close("bench")
    wait_until(lambda: gone(child))
    assert time.monotonic() - begin_s < WAIT_S / 10


def test_nothing_of_ray_listens_on_a_known_port_or_without_a_token(fleet: RayFleet) -> None:
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    ports = set[int]()
    for process in processes:
        with suppress(psutil.Error):
            connections = process.net_connections(kind="tcp")
            ports |= {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}
    assert ports  # on all addresses, as docs/security.md says
    assert not ports & {6379, 8265, 10001, 52365, 8080}
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64


def test_a_node_without_as_many_gpus_or_cpus_is_refused(fleet: RayFleet) -> None:
    with pytest.raises(EnvironmentNotReadyError, match="has 99 GPUs: the most is"):
        fleet.need(99)
    with pytest.raises(EnvironmentNotReadyError, match="has 1000 CPUs: the most is"):
        fleet.need(0, range(1000))
    assert fleet.need(0) == Need(0, len(os.sched_getaffinity(0)))


def test_an_address_where_nobody_listens_is_refused_before_ray_tries_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray would try for minutes"))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(EnvironmentNotReadyError, match="no Ray cluster answers at 127"):
            with ray_fleet(address, ignore, Stop()):
                pass


@pytest.mark.parametrize("address", ["auto", "ray://head:10001", "head"])
def test_malformed_address_of_a_head_node_is_refused(address: str) -> None:
    with pytest.raises(EnvironmentNotReadyError, match="not HOST:PORT"):
        with ray_fleet(address, ignore, Stop()):
            pass


DRIVER = """
import sys, time
from builders.fleets import versatile
from tuner.fleet import Need
from tuner.fleet_on_ray import ray_fleet
from tuner.machine.stop import Stop
with ray_fleet(None, lambda *_: None, Stop()) as fleet:
    fleet.open("bench", versatile, None, Need())
    fleet.submit("bench", ("report", sys.argv[1]))
    assert fleet.next_done().error is None
    print("ready", flush=True)
    fleet.submit("bench", ("wait", None))
    fleet.next_done()
"""


def test_benches_end_with_a_run_that_is_killed(tmp_path: Path) -> None:
    """What Ctrl-C ends: test_search_on_ray.py."""
    pids = tmp_path / "pids"
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(pids)],
        env={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n"
        driver.kill()
        out, err = driver.communicate(timeout=60)
    assert out == ""
    assert err == ""  # no line of Ray
    for pid in map(int, pids.read_text().split()):
        wait_until(lambda pid=pid: gone(pid))


CLUSTER = """
import sys
import ray
from ray.cluster_utils import Cluster
from builders.fleets import versatile
from tuner.fleet import Need
from tuner.fleet_on_ray import ray_fleet
from tuner.machine.stop import Stop
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
node = cluster.add_node(num_cpus=1)
with ray_fleet(cluster.address, lambda *_: None, Stop()) as fleet:
    fleet.open("bench", versatile, None, Need())
    fleet.submit("bench", ("report", sys.argv[1]))
    assert fleet.next_done().error is None
    raylet = node.all_processes["raylet"][0].process.pid
    print(raylet, flush=True)
    sys.stdin.readline()
cluster.shutdown()
"""


def test_a_bench_ends_itself_and_its_children_when_its_node_is_gone(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    paths = f"{TESTS}{os.pathsep}{TESTS.parent}"
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 32}
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER, str(pids)],
        env={**os.environ, "PYTHONPATH": paths, **token},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as driver:
        assert driver.stdout is not None
        os.kill(int(driver.stdout.readline()), signal.SIGKILL)
        for pid in map(int, pids.read_text().split()):
            wait_until(lambda pid=pid: gone(pid))
        driver.communicate("go on\n", timeout=60)
