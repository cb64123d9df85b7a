"""Tensors in shared memory: the answers are the same, and whoever is killed leaves none of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from builders import shared_images
from builders.shared_images import IMAGES, LOAD, LONG, images_on, serving_images
from builders.waits import wait_until

from tuner.errors import TrialError
from tuner.load.client import generator
from tuner.load.client.calls import asking
from tuner.load.setup import Site
from tuner.load.traffic.encoding import build
from tuner.load.traffic.reply import outputs_in
from tuner.load.traffic.shared_memory.laying import laying
from tuner.machine.process import group_members
from tuner.measurement.window import Window
from tuner.server.shared_memory import SHM

pytestmark = pytest.mark.integration

SHORT = Window(duration_s=0.5, warmup_s=0.1, deadline_s=30.0, tail_s=2.0)


def names(prefix: str) -> list[str]:
    return sorted(path.name for path in Path(SHM).glob(f"{prefix}*"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving_images(tmp_path_factory.mktemp("shared"), *IMAGES) as (_, served):
        yield served


@pytest.mark.parametrize("model", IMAGES)
@pytest.mark.parametrize("batch_size", [1, 3])
def test_answers_are_those_to_images_in_the_request_and_differ_between_images(
    site: Site, model: str, batch_size: int
) -> None:
    (stream,) = images_on(site, model, batch_size=batch_size).setup.streams
    given = stream.shapes[0].inputs.first(4)
    with laying(site.endpoints) as lay, asking(site.endpoints) as method:
        inside, elsewhere = (build(given, stream.form, 4, lay=to) for to in (None, lay))
        assert all(len(request) < 300 for request in elsewhere)
        answers = [[method.future(r).result() for r in sent] for sent in (inside, elsewhere)]
    assert answers[0] == answers[1]
    assert len({*answers[0]}) == 4


@pytest.mark.parametrize("batch_size", [1, 3])
def test_outputs_are_written_to_shared_memory_each_to_a_place_of_its_request(
    site: Site, batch_size: int
) -> None:
    (stream,) = images_on(site, "small", batch_size=batch_size).setup.streams
    given, region = stream.shapes[0].inputs.first(4), site.endpoints.shared
    assert region is not None
    with laying(site.endpoints, [stream.form]) as lay, asking(site.endpoints) as method:
        assert lay is not None
        inside = build(given, stream.form, 4)
        answers = [outputs_in(method.future(r).result())["y"].tobytes() for r in inside]
        elsewhere = build(given, stream.form, 100, lay=lay)
        waiting = [method.future(request) for request in elsewhere]
        assert all(len(call.result()) < 300 for call in waiting)
        places = [lay.outputs(stream.form, number)["y"] for number in range(len(elsewhere))]
        offsets = [int(place["shared_memory_offset"]) for place in places]
        written = [os.pread(region.descriptor, 32 * batch_size, offset) for offset in offsets]
    assert len({*offsets}) == len(elsewhere) == 64
    assert written == [answers[number % 4] for number in range(64)]


@pytest.mark.parametrize(
    ("protocol", "outputs"),
    [("grpc", False), ("http", False), ("grpc", True), ("http", True), ("http-json", True)],
)
def test_a_load_is_answered_and_leaves_its_images_nowhere(
    site: Site, protocol: str, outputs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By as many processes as there are cores, which send what was laid out once."""
    monkeypatch.setattr(generator, "processes_for", lambda *_: 2)
    load = images_on(site, "large", protocol, outputs=outputs)
    measurement = load.measure(LOAD, SHORT, 1)
    assert (measurement.failed_count, measurement.unanswered_count) == (0, 0)
    assert measurement.latencies_us is not None
    assert measurement.latencies_us.size == LOAD.level * SHORT.duration_s
    assert_empty(site)


def assert_empty(site: Site) -> None:
    """Its name was gone before the first request, and what was laid is gone too."""
    shared = site.endpoints.shared
    assert shared is not None
    assert not shared.path.exists()
    assert os.fstat(shared.descriptor).st_blocks == 0


def under_load(site: Site, kill: Callable[[], object]) -> None:
    """Has somebody killed once images are laid out, and waits for the measurement to fail."""
    shared = site.endpoints.shared
    assert shared is not None
    with ThreadPoolExecutor() as pool:

        def killed() -> None:
            wait_until(lambda: os.fstat(shared.descriptor).st_blocks > 0 and bool(clients()))
            kill()

        killing = pool.submit(killed)
        with pytest.raises(TrialError):
            images_on(site, "large").measure(LOAD, LONG, 1)
        killing.result()


def clients(of: int | None = None) -> list[psutil.Process]:
    """Processes of the client below this one or another, without those that have ended."""
    programs = []
    for child in psutil.Process(of).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # and zombies
            if "tuner.load.client.process" in child.cmdline():
                programs.append(child)
    return programs


def test_sigkill_of_the_processes_that_send_leaves_nothing(site: Site) -> None:
    under_load(site, lambda: [client.kill() for client in clients()])
    assert_empty(site)


def test_sigkill_of_the_server_leaves_nothing(tmp_path: Path) -> None:
    with serving_images(tmp_path, "large") as (pid, site):
        shared = site.endpoints.shared
        assert shared is not None
        prefix = shared.name.removesuffix("requests")
        assert names(prefix) != []  # the Python backend's own
        under_load(site, lambda: os.kill(pid, signal.SIGKILL))
    assert names(prefix) == []


def test_sigkill_of_tune_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "builders.shared_images", str(tmp_path)]
    tests = Path(shared_images.__file__).parents[1]
    with subprocess.Popen(command, cwd=tests, stdout=subprocess.PIPE) as tune:
        assert tune.stdout is not None
        server = int(tune.stdout.readline())
        wait_until(lambda: clients(tune.pid) != [])
        assert names(f"tune-{tune.pid}-") != []
        tune.kill()
        wait_until(lambda: group_members(server) == [])
    wait_until(lambda: names(f"tune-{tune.pid}-") == [])
