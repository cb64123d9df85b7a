"""The docker and remote modes against a server that answers like release 26.09."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from builders.candidates import candidate_of, the_one
from builders.newer_triton import GPU_BYTES, HOST, MODEL_METRICS, VERSION, Engine, NewerTriton
from builders.runs import MANIFEST
from builders.triton_repository import MODEL, make_repository
from contract.server_contract import ServerCase, ServerContract, answer, eventually

from tuner.cli import cli
from tuner.cli.boundary import guarded
from tuner.errors import EnvironmentNotReadyError
from tuner.load.watch.sampler import pending_requests
from tuner.modelconfig.message import newer_client, to_load_json
from tuner.modelconfig.schema import new_config
from tuner.modelconfig.served import read_served
from tuner.record.manifest import Choices
from tuner.record.store import RunStore
from tuner.run.trust import BegunRuns, state_directory
from tuner.server.control import BatchStatistics, Control, ModelState
from tuner.server.server import Endpoints, Server, key_arguments, new_key
from tuner.server.shared_memory import SHM
from tuner.spec.load import load_spec
from tuner.triton.changes import DeploymentKind
from tuner.triton.deploy import Deployer
from tuner.triton.docker import DockerLauncher, Network
from tuner.triton.doctor import run_checks
from tuner.triton.remote import INITIAL_CONFIGS, RemoteLauncher


def endpoints_of(server: NewerTriton) -> Endpoints:
    ports = (f"{HOST}:{server.ports[service]}" for service in ("http", "grpc", "metrics"))
    return Endpoints(*ports, server.key or None)


class TestDocker(ServerContract):
    @pytest.fixture
    def case(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerCase:
        engine = Engine()
        monkeypatch.setattr("docker.from_env", lambda **_: engine)
        launcher = DockerLauncher(
            "tritonserver:26.09",
            make_repository(tmp_path),
            {"DOCKER_HOST": f"unix://{tmp_path}/none"},  # the reaper finds none: tune removes it
            gpus="none",
            network=Network.HOST,
        )
        return ServerCase(
            launcher,
            MODEL,
            lambda server: engine.kill(""),
            lambda server: [] if engine.removed else ["the container"],
        )

    def test_the_version_is_the_images(self, case: ServerCase) -> None:
        assert case.launcher.version() == f"{VERSION}, image sha256:1"


class TestRemote(ServerContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> Iterator[ServerCase]:
        with NewerTriton(make_repository(tmp_path), key_arguments(new_key())) as theirs:

            def left(server: Server) -> list[str]:
                return [MODEL] if theirs.alive and theirs.running is not None else []

            launcher = RemoteLauncher(endpoints_of(theirs), (MODEL,))
            yield ServerCase(launcher, MODEL, lambda server: theirs.__exit__(), left)


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[NewerTriton]:
    with NewerTriton(make_repository(tmp_path)) as server:
        yield server


def test_a_remote_server_is_tuned_and_left_as_it_was(theirs: NewerTriton, tmp_path: Path) -> None:
    endpoints = endpoints_of(theirs)
    with Control(endpoints) as control:
        control.load(MODEL, None, 30)
        before = theirs.running.SerializeToString(deterministic=True)
        remote = RemoteLauncher(endpoints, (MODEL,))
        assert remote.version().startswith(VERSION)
        served = read_served(tmp_path / "models", [MODEL])
        smaller = candidate_of({"max_batch_size": 4, "instance_group.count": 2}, model=MODEL)
        with Deployer(remote, served, tmp_path / "unused") as deployer:
            running = the_one(deployer.deploy(smaller).running)
            assert (running.max_batch_size, running.instance_group[0].count) == (4, 2)
            assert deployer.deploy(smaller).kind is DeploymentKind.UNCHANGED

            first = control.statistics(MODEL)
            for _ in range(3):
                answer(endpoints, MODEL, [1, 2, 3, 4])
            eventually(lambda: control.statistics(MODEL).success_count == 3)
            last = control.statistics(MODEL)
            assert last.inference_count - first.inference_count == 3
            assert last.queue_ns - first.queue_ns == 3000
            assert last.batches == {1: BatchStatistics(3, 3000)}

            metrics = control.metrics()
            assert metrics is not None
            assert metrics.values("nv_inference_request_success", model=MODEL) == [3]
            assert sum(metrics.values("nv_inference_request_failure", model=MODEL)) == 3
            assert pending_requests(metrics, [MODEL]) == [0]
            assert metrics.values("nv_gpu_memory_used_bytes") == [GPU_BYTES]

            theirs.running = None  # an error of `ModelReady`: no refusal of the candidate
            assert deployer.deploy(smaller).kind is DeploymentKind.RESTART
        assert control.state(MODEL) is ModelState.READY
        assert theirs.running.SerializeToString(deterministic=True) == before


@pytest.mark.skipif(
    "model_metrics" in new_config().DESCRIPTOR.fields_by_name, reason="this tritonclient knows it"
)
def test_a_remote_server_that_could_not_be_put_back_is_left_alone(
    theirs: NewerTriton, tmp_path: Path
) -> None:
    endpoints = endpoints_of(theirs)
    theirs.newer = MODEL_METRICS
    with Control(endpoints) as control:
        control.load(MODEL, None, 30)
    before = theirs.running.SerializeToString(deterministic=True)
    with (
        pytest.raises(EnvironmentNotReadyError, match=f"{MODEL} runs at .* model_metrics") as error,
        RemoteLauncher(endpoints, (MODEL,)).launch((), tmp_path / "server.log"),
    ):
        pass
    assert error.value.hint == newer_client()
    assert theirs.running.SerializeToString(deterministic=True) == before
    assert not (tmp_path / INITIAL_CONFIGS).exists()


def test_a_remote_server_with_other_metrics_is_not_ready(
    theirs: NewerTriton, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(theirs, "metrics", lambda: "a b c\n")
    with pytest.raises(EnvironmentNotReadyError, match="reading the metrics") as error:
        RemoteLauncher(endpoints_of(theirs), (MODEL,)).version()
    assert error.value.hint == "check server.metrics"


def test_rollback_puts_back_the_server_of_a_run_that_was_killed(
    theirs: NewerTriton, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoints, spec = endpoints_of(theirs), tmp_path / "spec.yaml"
    server = f"{{mode: remote, http: {endpoints.http}, grpc: {endpoints.grpc}}}"
    space = "{max_batch_size: {choice: [4, 8]}}"
    slo = "p99_latency <= 1s"
    spec.write_text(
        f"model: {MODEL}\nrepository: models\nslo: [{slo}]\nspace: {space}\nserver: {server}\n"
    )
    with Control(endpoints) as control:
        control.load(MODEL, None, 30)
        theirs.running.max_batch_size = 6
        running = to_load_json(control.running_config(MODEL))
        control.load(MODEL, None, 30)
    store = RunStore.create(tmp_path, "killed")
    now = datetime.now(UTC).isoformat()
    sha256, choices = load_spec(spec, ()).sha256, Choices(directory=str(tmp_path))
    manifest = replace(MANIFEST, run_id="killed", created_at=now, spec_sha256=sha256)
    store.write_manifest(replace(manifest, spec_path=str(spec), choices=choices).to_json())
    (store.logs / INITIAL_CONFIGS).write_text(json.dumps({MODEL: running}))
    assert guarded(cli, ["rollback", str(store.directory)]) == 2  # someone else's run, maybe
    BegunRuns(state_directory(os.environ)).remember(store.directory, {spec: sha256})
    with store.locked():
        assert guarded(cli, ["rollback", str(store.directory)]) == 2
    assert guarded(cli, ["rollback", str(store.directory), "--dry-run"]) == 0
    assert theirs.running.max_batch_size == 8
    assert guarded(cli, ["rollback", str(store.directory)]) == 0
    assert theirs.running.max_batch_size == 6
    assert capsys.readouterr().out == f"restored: {MODEL} at {endpoints.grpc}\n"
    assert not (store.logs / INITIAL_CONFIGS).exists()

    (store.logs / INITIAL_CONFIGS).write_text(json.dumps({MODEL: running}))
    spec.write_text(spec.read_text().replace("1s", "2s"))
    assert guarded(cli, ["rollback", str(store.directory)]) == 2
    assert "is not the spec of the run any more" in capsys.readouterr().err


def test_doctor_finds_that_it_can_be_tuned(theirs: NewerTriton) -> None:
    endpoints = endpoints_of(theirs)
    server: Any = _spec_server(endpoints)
    (check,) = (c for c in run_checks({}, server=server) if c.id == "remote")
    assert check.ok
    assert check.found == f"{VERSION} at {endpoints.grpc}, in explicit model control"
    assert check.fix == ""


def _spec_server(endpoints: Endpoints) -> Any:
    from tuner.spec.server import ServerSpec

    return ServerSpec.model_validate(
        {"mode": "remote", "http": endpoints.http, "grpc": endpoints.grpc}
    )


def test_a_server_that_takes_no_inputs_in_shared_memory_is_refused_with_its_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine()
    monkeypatch.setattr("docker.from_env", lambda **_: engine)
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/none"}
    launcher = DockerLauncher(
        *("tritonserver:26.09", make_repository(tmp_path), nowhere),
        gpus="none",
        network=Network.HOST,
        shares=True,
    )
    with pytest.raises(EnvironmentNotReadyError, match="refuses tensors in shared memory") as error:
        with launcher.launch([], tmp_path / "log"):
            pass
    assert "--allow-client-shm=true" in error.value.hint
    assert engine.removed
    assert not list(Path(SHM).glob(f"tune-{os.getpid()}-*-requests"))
