"""Directories of killed owners are removed, those in use are not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tuner.machine.process import private_directory

pytestmark = pytest.mark.integration

PROGRAM = """
import time
from tuner.machine.process import private_directory
with private_directory() as directory:
    print(directory, flush=True)
    time.sleep(600)
"""


def test_only_what_nobody_holds_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command = [sys.executable, "-c", PROGRAM]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        theirs = Path(owner.stdout.readline().decode().strip())
        os.utime(theirs, (0, 0))
        with private_directory() as ours:
            assert {ours, theirs} == set(tmp_path.iterdir())
        owner.kill()
        owner.wait()
        with private_directory() as ours:
            assert [ours] == list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []
