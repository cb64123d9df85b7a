"""Directories of killed owners are removed, those in use are not."""

from __future__ import annotations

import os
import shlex
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


@pytest.mark.parametrize("name", ["a b", "it's", "$HOME", "temp"])
def test_a_private_directory_has_a_path_that_a_shell_takes_as_it_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton's Python backend starts its processes by `bash -c`, without quotes."""
    given = tmp_path / name
    given.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(given))
    with private_directory() as directory:
        assert shlex.quote(str(directory)) == str(directory)
        assert directory.is_relative_to(given) is (name == "temp")
    assert not directory.exists()
