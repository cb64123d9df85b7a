"""What the docker mode asks of the engine, and whose containers it takes for its own; no engine."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from docker.utils import format_environment

from tuner.errors import EnvironmentNotReadyError
from tuner.machine import host, process
from tuner.server.shared_memory import shared_region, shm_names
from tuner.triton import docker
from tuner.triton.docker import DockerLauncher, Network

PORTS = (1, 2, 3)


@pytest.fixture
def launcher(tmp_path: Path) -> DockerLauncher:
    return DockerLauncher("image:1", tmp_path, {}, gpus="none")


def test_the_host_network_serves_on_loopback_only(launcher: DockerLauncher, tmp_path: Path) -> None:
    options = launcher.options(Network.HOST, PORTS, ["--log-verbose=1"])
    assert options["command"] == [
        "tritonserver",
        "--model-repository=/models",
        "--model-control-mode=explicit",
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        "--metrics-address=127.0.0.1",
        "--http-port=1",
        "--grpc-port=2",
        "--metrics-port=3",
        "--log-verbose=1",
    ]
    assert options["network_mode"] == "host"
    assert "ports" not in options
    (mount,) = options["mounts"]
    assert (mount["Source"], mount["Target"], mount["ReadOnly"]) == (str(tmp_path), "/models", True)


def test_of_this_machines_shared_memory_it_has_the_region_of_requests_only(
    launcher: DockerLauncher,
) -> None:
    with shm_names() as names, shared_region(names) as region:
        mounts = launcher.options(Network.HOST, PORTS, [], shared=region)["mounts"]
    (mount,) = [m for m in mounts if m["Target"].startswith("/dev/shm")]
    assert mount["Source"] == mount["Target"] == str(region.path)
    assert not mount["ReadOnly"]


def test_the_servers_control_is_closed_to_whoever_lacks_the_key(launcher: DockerLauncher) -> None:
    command = launcher.options(Network.HOST, PORTS, ["--log-verbose=1"], "abc")["command"]
    closed = "model-repository,shared-memory,trace,logging:tune-key=abc"
    assert f"--grpc-restricted-protocol={closed}" in command
    assert f"--http-restricted-api={closed}" in command
    assert command[-1] == "--log-verbose=1"


def test_a_variable_that_is_not_to_be_set_is_taken_out_of_the_image(
    launcher: DockerLauncher,
) -> None:
    given = replace(launcher, environment={"OMP_NUM_THREADS": None, "MKL_NUM_THREADS": "1"})
    environment = given.options(Network.HOST, PORTS, [])["environment"]
    # Without "=", the engine removes what the image has.
    assert {"OMP_NUM_THREADS", "MKL_NUM_THREADS=1"} <= {*format_environment(environment)}


def test_published_ports_are_of_loopback(launcher: DockerLauncher) -> None:
    options = launcher.options(Network.PUBLISHED, PORTS, [])
    assert "--http-address=0.0.0.0" in options["command"]
    assert options["ports"] == {f"{port}/tcp": ("127.0.0.1", None) for port in PORTS}


def test_gpus_of_the_spec_become_device_requests(
    launcher: DockerLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def device_requests(**changes: object) -> list[dict[str, object]]:
        options = replace(launcher, **changes).options(Network.HOST, PORTS, [])
        return [dict(request) for request in options["device_requests"]]

    monkeypatch.setattr(host, "_GPU_DEVICES", (str(tmp_path / "none"),))
    assert device_requests(gpus="none") == device_requests(gpus="all") == []
    assert device_requests(gpus=(0, 2))[0]["DeviceIDs"] == ["0", "2"]
    monkeypatch.setattr(host, "_GPU_DEVICES", (str(tmp_path),))
    assert device_requests(gpus="none") == []
    (everything,) = device_requests(gpus="all")
    assert (everything["Count"], everything["Capabilities"]) == (-1, [["gpu"]])


def test_no_gpus_are_hidden_from_the_runtime_too(launcher: DockerLauncher) -> None:
    options = launcher.options(Network.HOST, PORTS, [])
    assert options["environment"] == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_a_mount_must_exist(launcher: DockerLauncher, tmp_path: Path) -> None:
    missing = replace(launcher, mounts={str(tmp_path / "missing"): "/inside"})
    with pytest.raises(EnvironmentNotReadyError, match=r"missing.*does not exist"):
        missing.options(Network.HOST, PORTS, [])


def test_an_owner_is_gone_when_its_process_is() -> None:
    boot, namespace, pid, started = process.current_owner().split()
    for ended in (True, False):
        assert not process.owner_gone(process.current_owner(), ended=ended)
        used_again = f"{boot} {namespace} {pid} {int(started) + 1}"
        assert process.owner_gone(used_again, ended=ended)
        assert process.owner_gone(f"{boot} {namespace} {_free_pid()} {started}", ended=ended)


class FakeContainers:
    """The engine's list, and what is removed from it."""

    def __init__(self, *states: str) -> None:
        self.api = self
        label = "another-boot pid:[1] 17 4711"
        self.there = [
            {"Id": f"{s}-container", "State": s, "Labels": {"tuner.run": label}} for s in states
        ]
        self.removed: list[str] = []

    def containers(self, **_: object) -> list[dict[str, object]]:
        return self.there

    def kill(self, container: str) -> None:
        pass

    def remove_container(self, container: str, **_: object) -> None:
        self.removed.append(container)


def test_another_machines_live_container_on_the_same_engine_is_left_alone() -> None:
    engine = FakeContainers("running", "created", "paused", "restarting", "exited", "dead")
    docker._remove_leftovers(engine)
    assert engine.removed == ["exited-container", "dead-container"]


@pytest.mark.parametrize(
    ("variables", "version"),
    [(["PATH=/bin", "TRITON_SERVER_VERSION=2.51.0"], "2.51.0"), (None, "unknown version")],
)
def test_the_version_names_the_image_whatever_its_tag(
    launcher: DockerLauncher,
    monkeypatch: pytest.MonkeyPatch,
    variables: list[str] | None,
    version: str,
) -> None:
    image = SimpleNamespace(id="sha256:0123", attrs={"Config": {"Env": variables}})
    engine = SimpleNamespace(images=SimpleNamespace(get={"image:1": image}.__getitem__))
    monkeypatch.setattr(docker, "engine", lambda _: nullcontext(engine))
    assert launcher.version() == f"{version}, image sha256:0123"


def test_the_container_has_no_rights_that_serving_does_not_need(launcher: DockerLauncher) -> None:
    options = launcher.options(Network.HOST, PORTS, [])
    assert (options["cap_drop"], options["cap_add"]) == (["ALL"], ["DAC_OVERRIDE"])
    assert options["security_opt"] == ["no-new-privileges"]
    assert 10_000 <= options["pids_limit"] <= 30_000
    assert not options.get("privileged")


def test_an_owner_that_cannot_be_judged_counts_as_living() -> None:
    boot, _, pid, started = process.current_owner().split()
    for owner in (f"{boot} pid:[1] {pid} {int(started) + 1}", "somebody else's label", ""):
        assert not process.owner_gone(owner, ended=True)


def _free_pid() -> int:
    return next(pid for pid in range(2, 1 << 22) if not os.path.exists(f"/proc/{pid}"))  # noqa: PTH110
