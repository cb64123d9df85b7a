"""What the local launcher does beyond the contract of servers."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders.triton_repository import CONFIG, MODEL

from tuner.machine.process import ADDRESS, free_ports
from tuner.server.control import Control
from tuner.triton import local
from tuner.triton.local import LocalLauncher

pytestmark = pytest.mark.integration


def test_a_port_that_was_taken_meanwhile_costs_one_more_attempt(
    launcher: LocalLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as thief:
        thief.bind((ADDRESS, 0))
        taken = int(thief.getsockname()[1])
        attempts: list[tuple[int, ...]] = []

        @contextmanager
        def first_time_taken(count: int) -> Iterator[tuple[int, ...]]:
            with free_ports(count) as ports:
                attempts.append(ports if attempts else (*ports[:-1], taken))
                yield attempts[-1]

        monkeypatch.setattr(local, "free_ports", first_time_taken)
        with launcher.launch([], tmp_path / "log") as server:
            assert len(attempts) == 2
            assert server.endpoints.metrics == f"{ADDRESS}:{attempts[1][2]}"
    assert "already in use" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(("gpus", "visible"), [("none", b""), ((0, 2), b"0,2"), ("all", None)])
def test_the_server_sees_only_the_gpus_of_the_spec(
    launcher: LocalLauncher, tmp_path: Path, gpus: object, visible: bytes | None
) -> None:
    limited = dataclasses.replace(launcher, gpus=gpus)
    with limited.launch([], tmp_path / "log") as server:
        environment = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
    values = [v.partition(b"=")[2] for v in environment if v.startswith(b"CUDA_VISIBLE_DEVICES=")]
    given = os.environb.get(b"CUDA_VISIBLE_DEVICES")
    expected = given if visible is None else visible
    assert values == ([] if expected is None else [expected])


def test_the_repository_is_not_written_into(launcher: LocalLauncher, tmp_path: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in launcher.repository.rglob("*")}
    with launcher.launch([], tmp_path / "log") as server, Control(server.endpoints) as control:
        control.load(MODEL, None, 30)
    assert {p: p.stat().st_mtime_ns for p in launcher.repository.rglob("*")} == before


def test_a_server_reads_the_config_by_its_name_else_config_pbtxt(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    """What `write_to` is for."""
    named = launcher.repository / MODEL / "configs" / "a100.pbtxt"
    named.parent.mkdir()
    named.write_text(CONFIG.replace("count: 1", "count: 3"))
    started = dataclasses.replace(launcher, args=("--model-config-name=a100",))
    counts = []
    for _ in range(2):
        with started.launch([], tmp_path / "log") as server, Control(server.endpoints) as control:
            control.load(MODEL, None, 30)
            counts.append(control.running_config(MODEL).instance_group[0].count)
        named.unlink(missing_ok=True)
    assert counts == [3, 1]


def test_a_killed_server_leaves_nothing_in_tmp(launcher: LocalLauncher, tmp_path: Path) -> None:
    place = Path("/tmp")
    before = {*place.glob("python_env_*")}
    with launcher.launch([], tmp_path / "log") as server, Control(server.endpoints) as control:
        control.load(MODEL, None, 30)
        made = {*place.glob("python_env_*")} - before
    assert made
    # Beside the server of another test it may be that one's, and is left to it.
    assert not any(path.exists() for path in made) or local._python_servers()


def test_cleanup_of_tmp_leaves_files_of_a_server_that_stays_up(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    place = Path("/tmp")
    before = {*place.glob("python_env_*")}
    with launcher.launch([], tmp_path / "a") as stays, Control(stays.endpoints) as control:
        control.load(MODEL, None, 30)
        theirs = {*place.glob("python_env_*")} - before
        servers = local._python_servers()
        with launcher.launch([], tmp_path / "b") as server, Control(server.endpoints) as second:
            second.load(MODEL, None, 30)
            made = {*place.glob("python_env_*")} - before - theirs
        assert made
        # Beside one that another test has just started it may be that one's, and is left to it.
        assert not any(path.exists() for path in made) or {*local._python_servers()} - {*servers}
        assert any(path.exists() for path in theirs)


def test_servers_run_side_by_side_and_append_to_one_log(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with launcher.launch([], log) as first, launcher.launch(["--id=second"], log) as second:
        assert first.alive()
        assert second.alive()
        assert first.endpoints != second.endpoints
        assert "| server_id                        | second" in second.log_tail(200)
    assert log.read_text().count("server_version") == 2
