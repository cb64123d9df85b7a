"""Nothing of a server survives the process that launched it, not even a stub that hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from builders.triton_repository import CONFIG, MODEL, make_repository
from contract.server_contract import eventually

from tuner.machine.process import group_members, tail
from tuner.server.shared_memory import SHM

pytestmark = pytest.mark.integration

PROGRAM = """
import os, sys, threading, time
from pathlib import Path
from tuner.server.binaries import tritonserver
from tuner.server.control import Control
from tuner.triton.local import LocalLauncher

repository, log, config, model = sys.argv[1:]
with (
    tritonserver(None, os.environ) as installation,
    LocalLauncher(installation, Path(repository)).launch([], Path(log)) as server,
    Control(server.endpoints) as control,
):
    print(server.pid, flush=True)
    control.load(model, config, 600)
    print("loaded", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("behaviour", ["good", "hang", "spin"])
def test_sigkill_of_the_parent_leaves_nothing(tmp_path: Path, behaviour: str) -> None:
    from tuner.modelconfig.message import parse, to_load_json

    repository = make_repository(tmp_path)
    config = to_load_json(parse(CONFIG.replace('"good"', f'"{behaviour}"')))
    before = sorted(path.relative_to(repository) for path in repository.rglob("*"))
    command = [sys.executable, "-c", PROGRAM, str(repository), str(tmp_path / "log"), config, MODEL]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        group = int(parent.stdout.readline())
        eventually(lambda: stubs(group) == 1)
        if behaviour == "good":
            assert parent.stdout.readline() == b"loaded\n"
        assert list(Path(SHM).glob(f"tune-{parent.pid}-*")) != []
        parent.kill()
        eventually(lambda: group_members(group) == [])
    assert list(Path(SHM).glob(f"tune-{parent.pid}-*")) == []
    assert sorted(path.relative_to(repository) for path in repository.rglob("*")) == before


def stubs(group: int) -> int:
    commands = [tail(Path(f"/proc/{pid}/cmdline"), 1) for pid in group_members(group)]
    return sum(command.split("\0")[0].endswith("python_backend_stub") for command in commands)
