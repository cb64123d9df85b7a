"""An ensemble on a real server: its steps change one by one, and it answers after each change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from builders.triton_repository import FIRST, SECOND, TOP, make_ensemble
from contract.server_contract import answer

from tuner.errors import DeployRefusedError
from tuner.modelconfig.served import read_served
from tuner.server.binaries import Installation
from tuner.server.control import Control, ModelState
from tuner.server.server import ServerLauncher
from tuner.space.candidate import Candidate, FieldValue
from tuner.triton.changes import DeploymentKind
from tuner.triton.deploy import Deployer
from tuner.triton.local import LocalLauncher
from tuner.triton.remote import RemoteLauncher

pytestmark = [pytest.mark.integration, pytest.mark.long]

COUNT = "instance_group.count"
SIZE = "max_batch_size"
BEHAVIOUR = "parameters.behaviour"


def steps(**fields: Mapping[str, FieldValue]) -> Candidate:
    return Candidate.of_models(fields)


def answers(deployer: Deployer) -> bool:
    return answer(deployer.server.endpoints, TOP, [1, 2, 3, 4]) == [4, 8, 12, 16]


@pytest.fixture
def launcher(installation: Installation, tmp_path: Path) -> LocalLauncher:
    return LocalLauncher(installation, make_ensemble(tmp_path))


@pytest.fixture
def make(launcher: LocalLauncher, tmp_path: Path) -> Callable[..., Deployer]:
    def deployer(by: ServerLauncher = launcher) -> Deployer:
        served = read_served(launcher.repository, [TOP])
        return Deployer(by, served, tmp_path / "server.log", load_timeout_s=30.0)

    return deployer


def test_each_step_is_changed_with_the_least_work_and_the_ensemble_answers(
    make: Callable[..., Deployer],
) -> None:
    with make() as deployer:
        assert deployer.deploy(steps(second={COUNT: 2})).kind is DeploymentKind.RESTART
        assert answers(deployer)

        wider = deployer.deploy(steps(first={COUNT: 2}, second={COUNT: 2}))
        assert wider.kind is DeploymentKind.IN_PLACE
        assert [wider.running[m].instance_group[0].count for m in (FIRST, SECOND)] == [2, 2]
        assert answers(deployer)

        smaller = deployer.deploy(steps(first={COUNT: 2, SIZE: 4}, second={COUNT: 2}))
        assert smaller.kind is DeploymentKind.RELOAD
        assert [smaller.running[m].max_batch_size for m in (FIRST, SECOND, TOP)] == [4, 8, 4]
        assert [smaller.running[m].instance_group[0].count for m in (FIRST, SECOND)] == [2, 2]
        assert answers(deployer)

        # Smaller batches for all: the ensemble is gone for a moment between its first step and it.
        both = {SIZE: 2}
        assert deployer.deploy(steps(first=both, whole=both)).running[TOP].max_batch_size == 2
        assert answers(deployer)


def test_after_a_step_that_is_refused_beside_its_old_copy_and_without_the_next_deploy_works(
    make: Callable[..., Deployer],
) -> None:
    with make() as deployer:
        deployer.deploy(steps())
        with pytest.raises(DeployRefusedError, match=r"^second: ValueError: no such weights$"):
            deployer.deploy(steps(first={COUNT: 2}, second={BEHAVIOUR: "raise"}))
        assert deployer.deploy(steps(first={COUNT: 2})).kind is DeploymentKind.RELOAD
        assert answers(deployer)

        # Triton loads a step that does not fit, and drops the ensemble without a word.
        with pytest.raises(DeployRefusedError, match=r"^whole: .*maximum batch size"):
            deployer.deploy(steps(first={SIZE: 2}))
        again = deployer.deploy(steps())
        assert again.kind is DeploymentKind.RELOAD
        assert again.running[FIRST].max_batch_size == 8
        assert answers(deployer)


def test_a_server_without_completion_serves_the_same_ensemble(
    make: Callable[..., Deployer],
) -> None:
    with make() as deployer:
        completed = deployer.deploy(steps(first={COUNT: 2})).running
        deployer.completes = False
        deployer.fresh()
        assert deployer.deploy(steps(first={COUNT: 2})).running == completed
        assert not deployer.completes
        assert answers(deployer)


def test_a_remote_servers_ensemble_is_put_back_as_it_was(
    launcher: LocalLauncher, make: Callable[..., Deployer], tmp_path: Path
) -> None:
    names = (FIRST, SECOND, TOP)
    with launcher.launch([], tmp_path / "log") as theirs, Control(theirs.endpoints) as control:
        control.load(FIRST, None, 30)
        with make(RemoteLauncher(theirs.endpoints, names)) as deployer:
            deployer.deploy(steps(first={SIZE: 4}))
            assert answers(deployer)
            deployer.fresh()
            deployer.deploy(steps(second={COUNT: 2}))
            assert answers(deployer)
        assert [control.state(m) for m in names] == [
            *(ModelState.READY, ModelState.UNAVAILABLE, ModelState.UNAVAILABLE)
        ]
        assert control.running_config(FIRST).max_batch_size == 8
