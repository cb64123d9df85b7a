"""The docker mode with a real engine and tritonserver: `pytest -m docker tests/docker`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.grpc
from builders.serving import write_models
from builders.triton_repository import make_repository

from tuner.errors import EnvironmentNotReadyError, ServerGoneError
from tuner.load.watch.machine import TunerProcesses
from tuner.machine.process import is_inside
from tuner.modelconfig.files import read_model
from tuner.server.control import Control
from tuner.server.shared_memory import SHM
from tuner.triton.docker import DockerLauncher, DockerServer, Network

pytestmark = pytest.mark.docker

LABEL = "tuner.run"
MODEL = "emulated-accelerator"

#: Launches a server, says so and waits to be killed.
KILLED_TUNE = """
import os, sys, time
from pathlib import Path
from tuner.triton.docker import DockerLauncher

image, repository, log = sys.argv[1:]
launcher = DockerLauncher(image, Path(repository), engine_environment=os.environ, shares=True)
with launcher.launch([], Path(log)) as server:
    print(server.container_id, flush=True)
    time.sleep(60)
"""


def containers(engine: Any) -> list[str]:
    return [
        container["Id"] for container in engine.api.containers(all=True, filters={"label": LABEL})
    ]


def wait_until_gone(engine: Any, container: str) -> float:
    """Seconds until the engine no longer knows the container."""
    start = time.monotonic()
    while container in containers(engine):
        assert time.monotonic() - start < 20, f"container {container} is still there"
        time.sleep(0.05)
    return time.monotonic() - start


def infer(server: DockerServer, x: np.ndarray) -> np.ndarray:
    with tritonclient.grpc.InferenceServerClient(server.endpoints.grpc) as client:
        tensor = tritonclient.grpc.InferInput("x", list(x.shape), "FP32")
        tensor.set_data_from_numpy(x)
        return client.infer(MODEL, [tensor]).as_numpy("y")


@contextmanager
def killed_tune(launcher: DockerLauncher, log: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of its own with a server in a container, and the container's id."""
    arguments = [launcher.image, str(launcher.repository), str(log)]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_TUNE, *arguments],
        env=dict(launcher.engine_environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as tune:
        try:
            assert tune.stdout is not None
            yield tune, tune.stdout.readline().strip()
        finally:
            tune.kill()


@pytest.mark.parametrize("network", Network)
def test_a_model_answers_and_nothing_is_left(
    launcher: DockerLauncher, engine: Any, tmp_path: Path, network: Network
) -> None:
    log = tmp_path / "server.log"
    with replace(launcher, network=network).launch([], log) as server:
        with Control(server.endpoints) as control:
            control.load(MODEL, None, 60)
            metrics = control.metrics()
        x = np.arange(128, dtype=np.float32).reshape(2, 64)
        np.testing.assert_array_equal(infer(server, x), 2 * x + 1)
        assert metrics is not None
        assert server.alive()
        assert server.container_id in containers(engine)
    assert server.container_id not in containers(engine)
    assert not server.alive()
    assert f"successfully loaded '{MODEL}'" in log.read_text()


@pytest.mark.parametrize("network", Network)
def test_a_request_may_have_its_inputs_in_memory_that_the_container_shares(
    launcher: DockerLauncher, tmp_path: Path, network: Network
) -> None:
    """Its file has lost its name once the server is ready."""
    log = tmp_path / "server.log"
    with replace(launcher, network=network, shares=True).launch([], log) as server:
        shared = server.endpoints.shared
        assert shared is not None
        assert not shared.path.exists()
        with Control(server.endpoints) as control:
            control.load(MODEL, None, 60)
        x = np.arange(64, dtype=np.float32).reshape(1, 64)
        with tritonclient.grpc.InferenceServerClient(server.endpoints.grpc) as client:
            tensor = tritonclient.grpc.InferInput("x", list(x.shape), "FP32")
            shared.write(4096, x.tobytes())
            tensor.set_shared_memory(shared.name, x.nbytes, 4096)
            answer = client.infer(MODEL, [tensor]).as_numpy("y")
        np.testing.assert_array_equal(answer, 2 * x + 1)


def test_processes_of_the_launched_container_are_distinguished_from_others(
    launcher: DockerLauncher, tmp_path: Path
) -> None:
    with launcher.launch([], tmp_path / "log"):
        inside = [psutil.Process(pid).name() for pid in psutil.pids() if is_inside(pid)]
        assert any(name.startswith("triton") for name in inside)
        assert not is_inside(os.getpid())
        assert TunerProcesses(containers=True).cpu_s() is not None


@pytest.mark.parametrize("network", Network)
def test_only_this_machine_reaches_the_server(
    launcher: DockerLauncher, tmp_path: Path, network: Network
) -> None:
    with replace(launcher, network=network).launch([], tmp_path / "log") as server:
        given = (server.endpoints.http, server.endpoints.grpc, server.endpoints.metrics)
        ports = {int(str(endpoint).rpartition(":")[2]) for endpoint in given}
        listening = {
            (c.laddr.ip.removeprefix("::ffff:"), c.laddr.port)
            for c in psutil.net_connections("tcp")
            if c.status == psutil.CONN_LISTEN and c.laddr.port in ports
        }
        assert listening == {("127.0.0.1", port) for port in ports}


def test_settings_of_the_spec_reach_the_container(
    launcher: DockerLauncher, engine: Any, tmp_path: Path
) -> None:
    (tmp_path / "extra").mkdir()
    configured = replace(
        launcher,
        environment={"SEEN": "by the server"},
        mounts={str(tmp_path / "extra"): "/extra"},
        shm_size_bytes=96 << 20,
        args=("--cache-config=local,size=1048576", "--log-verbose=1"),
    )
    with configured.launch(["--cache-config=local,size=2097152"], tmp_path / "log") as server:
        container = engine.containers.get(server.container_id)

        def run(*command: str) -> tuple[int, str]:
            result = container.exec_run(list(command))
            return result.exit_code, result.output.decode()

        assert run("printenv", "SEEN") == (0, "by the server\n")
        assert run("df", "--output=size", "-B1", "/dev/shm")[1].split()[1] == str(96 << 20)
        for path in ("/models", "/extra"):
            status, output = run("touch", f"{path}/new")
            assert (status, "Read-only file system" in output) == (1, True)
        cache = next(line for line in server.log_tail(10_000).splitlines() if "TritonCache" in line)
        assert "2097152" in cache  # the candidate's argument wins over the spec's


def test_the_server_reads_a_private_repository_and_has_no_other_right_of_root(
    launcher: DockerLauncher, engine: Any, tmp_path: Path
) -> None:
    private = make_repository(tmp_path)
    for path in (private, *private.rglob("*")):
        os.chown(path, 1000, 1000)
        path.chmod(0o700 if path.is_dir() else 0o600)
    mine = replace(launcher, repository=private)
    with mine.launch([], tmp_path / "log") as server, Control(server.endpoints) as control:
        control.load("doubler", None, 60)
        container = engine.containers.get(server.container_id)
        status = container.exec_run(["cat", "/proc/1/status"]).output.decode()
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (int(facts["CapBnd"], 16), facts["NoNewPrivs"]) == (1 << 1, "1")  # CAP_DAC_OVERRIDE


def test_version_of_a_container_names_the_image(launcher: DockerLauncher, engine: Any) -> None:
    assert launcher.version().endswith(f", image {engine.images.get(launcher.image).id}")


def test_missing_backend_of_an_image_is_reported_before_a_server_starts(
    launcher: DockerLauncher, engine: Any, tmp_path: Path
) -> None:
    repository = write_models(
        tmp_path / "models", m='backend: "python"', n='backend: "onnxruntime"'
    )
    python, onnx = (read_model(repository, name) for name in "mn")
    before = {c["Id"] for c in engine.api.containers(all=True)}
    assert launcher.check_backends([python]) == "python"
    with pytest.raises(EnvironmentNotReadyError, match=r"n needs the onnxruntime .* only python"):
        launcher.check_backends([python, onnx])
    (tmp_path / "backends" / "onnxruntime").mkdir(parents=True)
    (tmp_path / "backends" / "onnxruntime" / "model.py").touch()
    args = ("--backend-directory=/more",)
    more = replace(launcher, mounts={str(tmp_path / "backends"): "/more"}, args=args)
    assert more.check_backends([onnx]) == "onnxruntime"
    for none in (more, replace(launcher, args=args)):
        with pytest.raises(EnvironmentNotReadyError, match=r"m needs .* (none|onnx)") as error:
            none.check_backends([python])
        assert "--backend-directory" in error.value.hint
    assert {c["Id"] for c in engine.api.containers(all=True)} == before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_tune_leaves_no_container(
    launcher: DockerLauncher, engine: Any, tmp_path: Path, number: signal.Signals
) -> None:
    with killed_tune(launcher, tmp_path / "log") as (tune, container):
        assert container in containers(engine)
        tune.send_signal(number)
        tune.wait(20)
        assert wait_until_gone(engine, container) < 5
        assert not list(Path(SHM).glob(f"tune-{tune.pid}-*"))


def test_the_next_launch_removes_what_a_killed_reaper_left(
    launcher: DockerLauncher, engine: Any, tmp_path: Path
) -> None:
    with killed_tune(launcher, tmp_path / "log") as (tune, container):
        for reaper in psutil.Process(tune.pid).children():
            reaper.kill()
        tune.kill()
        tune.wait(20)
        time.sleep(0.5)
        assert container in containers(engine)
        with launcher.launch([], tmp_path / "next"):
            assert container not in containers(engine)


def test_a_container_is_removed_without_its_reaper_too(
    launcher: DockerLauncher, engine: Any, tmp_path: Path
) -> None:
    with launcher.launch([], tmp_path / "log") as server:
        for reaper in psutil.Process().children():
            if "container_reaper" in " ".join(reaper.cmdline()):
                reaper.kill()
    assert server.container_id not in containers(engine)


def test_the_container_of_a_living_tune_is_left_alone(
    launcher: DockerLauncher, engine: Any, tmp_path: Path
) -> None:
    with killed_tune(launcher, tmp_path / "log") as (_, container):
        with launcher.launch([], tmp_path / "other") as server:
            assert {container, server.container_id} <= set(containers(engine))


def test_a_server_that_is_killed_is_seen_to_be_gone(
    launcher: DockerLauncher, engine: Any, tmp_path: Path
) -> None:
    with launcher.launch([], tmp_path / "log") as server:
        engine.api.kill(server.container_id)
        deadline = time.monotonic() + 5
        while server.alive():
            assert time.monotonic() < deadline
        assert "Started HTTPService" in server.log_tail()
    assert server.container_id not in containers(engine)


def test_a_server_that_refuses_its_arguments(
    launcher: DockerLauncher, engine: Any, tmp_path: Path
) -> None:
    before = containers(engine)
    with pytest.raises(ServerGoneError, match="no-such-option"):
        with launcher.launch(["--no-such-option"], tmp_path / "log"):
            pass
    assert containers(engine) == before


def test_a_missing_image_is_named(launcher: DockerLauncher, tmp_path: Path) -> None:
    missing = replace(launcher, image="local/no-such-image:1")
    with pytest.raises(EnvironmentNotReadyError, match="local/no-such-image:1") as raised:
        with missing.launch([], tmp_path / "log"):
            pass
    assert "docker pull local/no-such-image:1" in raised.value.hint


def test_an_image_without_a_tritonserver(
    launcher: DockerLauncher, engine: Any, tmp_path: Path
) -> None:
    before = containers(engine)
    without = replace(launcher, environment={"PATH": "/nowhere"})
    with pytest.raises(EnvironmentNotReadyError, match=r"cannot start .*tritonserver"):
        with without.launch([], tmp_path / "log"):
            pass
    assert containers(engine) == before


def test_missing_container_engine_is_reported_with_docker_host(
    launcher: DockerLauncher, tmp_path: Path
) -> None:
    nowhere = {**launcher.engine_environment, "DOCKER_HOST": "tcp://127.0.0.1:9"}
    with pytest.raises(EnvironmentNotReadyError, match="no container engine answers") as raised:
        with replace(launcher, engine_environment=nowhere).launch([], tmp_path / "log"):
            pass
    assert "DOCKER_HOST" in raised.value.hint
