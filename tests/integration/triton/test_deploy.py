"""Candidates on a real server: what each change costs, and that no failure outlives its trial."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from builders.candidates import candidate_of, the_one
from builders.triton_repository import MODEL
from contract.server_contract import answer, eventually

from tuner.errors import DeployRefusedError, ServerGoneError
from tuner.modelconfig.served import read_served
from tuner.server.log import meaning
from tuner.space.candidate import Candidate, FieldValue
from tuner.triton.changes import DeploymentKind
from tuner.triton.deploy import Deployer
from tuner.triton.local import LocalLauncher, LocalServer

pytestmark = [pytest.mark.integration, pytest.mark.long]

COUNT = "instance_group.count"
SIZE = "max_batch_size"
BEHAVIOUR = "parameters.behaviour"
CACHE = 1 << 20


def candidate(cache_bytes: int | None = None, **fields: FieldValue) -> Candidate:
    names = {"count": COUNT, "size": SIZE, "behaviour": BEHAVIOUR, "lock": "parameters.lock"}
    return candidate_of({names[name]: value for name, value in fields.items()}, cache_bytes, MODEL)


@pytest.fixture
def make(launcher: LocalLauncher, tmp_path: Path) -> Callable[..., Deployer]:
    def deployer(**more: Any) -> Deployer:
        served = read_served(launcher.repository, [MODEL])
        return Deployer(launcher, served, tmp_path / "server.log", **more)

    return deployer


def serves(deployer: Deployer) -> bool:
    endpoints = deployer.deploy(candidate()).endpoints
    return answer(endpoints, MODEL, [1, 2, 3, 4]) == [2, 4, 6, 8]


def test_each_change_takes_the_least_it_can(make: Callable[..., Deployer]) -> None:
    with make() as deployer:
        assert deployer.deploy(candidate()).kind is DeploymentKind.RESTART
        assert serves(deployer)
        assert deployer.deploy(candidate()).kind is DeploymentKind.UNCHANGED

        wider = deployer.deploy(candidate(count=2))
        assert wider.kind is DeploymentKind.IN_PLACE
        assert the_one(wider.running).instance_group[0].count == 2
        # Triton keeps its counters through an in-place update, and drops them in a reload.
        eventually(lambda: deployer.control.statistics(MODEL).success_count == 1)

        smaller = deployer.deploy(candidate(count=2, size=4))
        assert smaller.kind is DeploymentKind.RELOAD
        assert the_one(smaller.running).max_batch_size == 4
        assert deployer.control.statistics(MODEL).success_count == 0

        cached = deployer.deploy(candidate(CACHE))
        assert cached.kind is DeploymentKind.RESTART
        assert cached.endpoints != smaller.endpoints

        deployer.fresh()
        assert deployer.deploy(candidate(CACHE)).kind is DeploymentKind.RESTART


def test_without_completion_a_complete_config_runs_unchanged(
    make: Callable[..., Deployer],
) -> None:
    with make() as deployer:
        completed = deployer.deploy(candidate(count=2)).running
        deployer.completes = False
        deployer.fresh()
        assert deployer.deploy(candidate(count=2)).running == completed
        assert not deployer.completes
        assert serves(deployer)


def test_a_refused_config_fails_with_tritons_reason_and_the_server_goes_on(
    make: Callable[..., Deployer],
) -> None:
    with make() as deployer:
        # Not valid by itself: the answer has no reason, the log does.
        wrong = candidate_of({SIZE: 4, "dynamic_batching.preferred_batch_size": (8,)}, model=MODEL)
        with pytest.raises(DeployRefusedError) as refused:
            deployer.deploy(wrong)
        assert refused.value.message == (
            f"dynamic batching preferred size must be <= max batch size for {MODEL}"
        )
        assert serves(deployer)

        on_gpu = candidate_of({"instance_group.kind": "KIND_GPU"}, model=MODEL)
        with pytest.raises(DeployRefusedError, match="KIND_GPU") as refused:
            deployer.deploy(on_gpu)
        assert meaning(refused.value.message) == "no GPU"

        with pytest.raises(DeployRefusedError, match=r"^ValueError: no such weights$"):
            deployer.deploy(candidate(behaviour="raise"))
        with pytest.raises(DeployRefusedError, match=r"(?i)stub"):
            deployer.deploy(candidate(behaviour="die"))
        assert deployer.deploy(candidate()).kind is DeploymentKind.RELOAD, "tried without it too"
        assert serves(deployer)


def test_a_model_that_never_loads_hits_the_deadline(make: Callable[..., Deployer]) -> None:
    steps: list[str] = []
    with make(load_timeout_s=6.0, step=steps.append) as deployer:
        with pytest.raises(ServerGoneError, match=r"no answer within 6 s"):
            deployer.deploy(candidate(behaviour="hang"))
        assert steps.count(f"loading {MODEL}") == 1
        assert not deployer.alive()
        assert serves(deployer)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_server_that_died_or_hangs_is_replaced(
    make: Callable[..., Deployer], number: signal.Signals
) -> None:
    with make() as deployer:
        deployer.deploy(candidate())
        server = deployer.server
        assert isinstance(server, LocalServer)
        os.kill(server.pid, number)
        eventually(lambda: psutil.Process(server.pid).status() in ("stopped", "zombie"))
        assert deployer.deploy(candidate()).kind is DeploymentKind.RESTART
        assert serves(deployer)
        assert deployer.server is not server


def test_a_reload_that_runs_out_of_memory_is_tried_again_where_no_old_copy_is(
    make: Callable[..., Deployer], tmp_path: Path
) -> None:
    memory = str(tmp_path / "memory")
    with make() as deployer:
        deployer.deploy(candidate(lock=memory))
        # Two copies do not fit: the first attempt fails, a new server finds the memory free.
        server = deployer.server
        deployment = deployer.deploy(candidate(lock=memory, size=4))
        assert deployment.kind is DeploymentKind.RESTART
        assert deployer.server is not server
        assert the_one(deployment.running).max_batch_size == 4

        # Two instances of one model do not fit either, whatever is unloaded.
        with pytest.raises(DeployRefusedError, match="out of memory"):
            deployer.deploy(candidate(lock=memory, size=2, count=2))
        assert the_one(deployer.deploy(candidate(lock=memory)).running).max_batch_size == 8


def test_a_device_that_one_copy_can_hold_is_freed_before_each_reload(
    make: Callable[..., Deployer], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = str(tmp_path / "device")
    with make() as deployer:
        deployer.deploy(candidate(lock=device))
        kinds = [deployer.deploy(candidate(lock=device, size=size)).kind for size in (4, 2, 1)]
        assert kinds == [DeploymentKind.RELOAD] * 3
        assert [m for m in caplog.messages if "device 0 is in use" in m] == caplog.messages
        assert len(caplog.messages) == 1

        with pytest.raises(DeployRefusedError, match=r"^device 0 is in use$"):
            deployer.deploy(candidate(lock=device, size=1, count=2))
        assert the_one(deployer.deploy(candidate(lock=device)).running).max_batch_size == 8
