"""Servers that somebody else runs: which are refused, and how they are left."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.candidates import candidate_of
from builders.their_server import their_server
from builders.triton_repository import MODEL

from tuner.errors import EnvironmentNotReadyError
from tuner.machine.process import ADDRESS, free_ports
from tuner.modelconfig.served import read_served
from tuner.server.control import Control, ModelState
from tuner.server.server import Endpoints
from tuner.triton.changes import DeploymentKind
from tuner.triton.deploy import Deployer
from tuner.triton.local import LocalLauncher
from tuner.triton.remote import RemoteLauncher

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_a_server_that_loads_nothing_on_request_is_refused(
    launcher: LocalLauncher, tmp_path: Path, mode: str
) -> None:
    with their_server(launcher, f"--model-control-mode={mode}") as endpoints:
        with pytest.raises(EnvironmentNotReadyError, match="mode is none or poll") as refused:
            with RemoteLauncher(endpoints, (MODEL,)).launch([], tmp_path / "unused"):
                pass
        assert "--model-control-mode=explicit" in refused.value.hint
        with Control(endpoints) as control:
            assert control.state(MODEL) is ModelState.READY


def test_no_server_is_an_error_with_the_address(tmp_path: Path) -> None:
    with free_ports(1) as (port,):
        nowhere = f"{ADDRESS}:{port}"
    launcher = RemoteLauncher(Endpoints(nowhere, nowhere, None), (MODEL,))
    with pytest.raises(EnvironmentNotReadyError, match=nowhere):
        with launcher.launch([], tmp_path / "unused"):
            pass


def test_wrong_grpc_address_is_distinguished(launcher: LocalLauncher, tmp_path: Path) -> None:
    with launcher.launch([], tmp_path / "log") as theirs:
        wrong = Endpoints(theirs.endpoints.http, "127.0.0.1:1", None)
        with pytest.raises(EnvironmentNotReadyError, match=r"over gRPC at 127.0.0.1:1"):
            with RemoteLauncher(wrong, (MODEL,)).launch([], tmp_path / "unused"):
                pass


def test_a_loaded_model_is_put_back_as_it_was(launcher: LocalLauncher, tmp_path: Path) -> None:
    wider = candidate_of({"instance_group.count": 2}, model=MODEL)
    with launcher.launch([], tmp_path / "log") as theirs, Control(theirs.endpoints) as control:
        control.load(MODEL, None, 30)
        remote = RemoteLauncher(theirs.endpoints, (MODEL,))
        served = read_served(launcher.repository, [MODEL])
        with Deployer(remote, served, tmp_path / "unused") as deployer:
            # Nothing is known about what ran before, so the first one counts as a start.
            assert deployer.deploy(wider).kind is DeploymentKind.RESTART
            assert control.running_config(MODEL).instance_group[0].count == 2
            with pytest.raises(EnvironmentNotReadyError, match="cannot be given --cache-config"):
                deployer.deploy(candidate_of({}, 1048576, MODEL))
            assert deployer.deploy(wider).kind is DeploymentKind.RESTART
            deployer.fresh()
            assert control.state(MODEL) is ModelState.UNAVAILABLE
            assert deployer.deploy(wider).kind is DeploymentKind.RELOAD
        assert control.state(MODEL) is ModelState.READY
        assert control.running_config(MODEL).instance_group[0].count == 1


def test_a_model_that_was_not_loaded_is_unloaded(launcher: LocalLauncher, tmp_path: Path) -> None:
    with launcher.launch([], tmp_path / "log") as theirs, Control(theirs.endpoints) as control:
        with RemoteLauncher(theirs.endpoints, (MODEL,)).launch([], tmp_path / "unused"):
            control.load(MODEL, None, 30)
        assert control.state(MODEL) is ModelState.UNAVAILABLE


def test_a_server_that_is_gone_at_the_end_is_an_error(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    with launcher.launch([], tmp_path / "log") as theirs:
        remote = RemoteLauncher(theirs.endpoints, (MODEL,))
        launched = remote.launch([], tmp_path / "unused")
        launched.__enter__()
        remote.refuse_left_otherwise()
    launched.__exit__(None, None, None)
    with pytest.raises(EnvironmentNotReadyError, match=f"were not restored: {MODEL}: "):
        remote.refuse_left_otherwise()
