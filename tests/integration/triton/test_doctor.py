"""The checks of `tune doctor` on this machine."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from tuner.spec.server import ServerMode, ServerSpec
from tuner.triton.doctor import MachineCheck, run_checks
from tuner.triton.local import LocalLauncher

pytestmark = pytest.mark.integration


def by_id(checks: list[MachineCheck]) -> dict[str, MachineCheck]:
    return {check.id: check for check in checks}


def test_a_machine_with_the_wheels_is_ready(tmp_path: Path) -> None:
    checks = by_id(run_checks(os.environ, repository=tmp_path, results=tmp_path / "a" / "b"))
    for name in ("tritonserver", "perf_analyzer", "ports", "gpu", "repository", "results"):
        assert checks[name].ok, checks[name]
    assert checks["tritonserver"].found.startswith("2.51.0")
    assert checks["numpy"].ok
    assert checks["numpy"].found.startswith(f"{version('numpy')} ("), checks["numpy"]
    assert "docker" not in checks
    assert all(check.fix or check.ok for check in checks.values())


def test_missing_programs_and_repository_come_with_a_fix(tmp_path: Path) -> None:
    server = ServerSpec(mode=ServerMode.LOCAL, binary="/no/such/tritonserver")
    checks = by_id(
        run_checks(
            os.environ,
            server=server,
            perf_analyzer="/no/such/perf_analyzer",
            repository=tmp_path / "none",
        )
    )
    for name in ("tritonserver", "perf_analyzer", "repository"):
        assert not checks[name].ok
        assert checks[name].fix


def test_control_mode_of_a_remote_server_is_queried(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    open_to_all = replace(launcher, restricted=())
    with open_to_all.launch([], tmp_path / "log") as theirs:
        there = ServerSpec(
            mode=ServerMode.REMOTE, http=theirs.endpoints.http, grpc=theirs.endpoints.grpc
        )
        check = by_id(run_checks(os.environ, server=there))["remote"]
        assert check.ok, check
        assert "explicit" in check.found
    check = by_id(run_checks(os.environ, server=there))["remote"]
    assert not check.ok
    assert check.fix


# The docker SDK leaves its socket open when nobody answers.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_engine_is_queried_only_in_docker_mode(tmp_path: Path) -> None:
    environment = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/no.sock"}
    server = ServerSpec(mode=ServerMode.DOCKER, image="any")
    checks = by_id(run_checks(environment, server=server))
    assert "tritonserver" not in checks
    assert not checks["docker"].ok
    assert "no.sock" in checks["docker"].found
    gc.collect()
