"""`tune apply` of several models that is killed between two files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders.commands import Tune
from builders.messages_runs import SEARCHED, put_several

#: Runs the command line of its arguments, and kills itself as it replaces the first of them.
KILLED = """
import os, signal, sys
from pathlib import Path
from tuner.cli import main
rename, target = Path.replace, Path(sys.argv.pop(1))
def killed(path, new):
    if new == target:
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(path, new)
Path.replace = killed
main()
"""


def test_half_written_apply_is_undone_and_reported_by_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, repository, tune = put_several(tmp_path), tmp_path / "models", Tune(capsys)
    configs = [repository / name / "config.pbtxt" for name in SEARCHED]
    _, old = (path.read_text() for path in configs)
    words = ["apply", str(run), "--repository", str(repository)]
    argv = [sys.executable, "-c", KILLED, str(configs[1]), *words]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGKILL
    models = json.loads((run / "result.json").read_text())["models"]
    winners = [models[name]["config_after"] for name in SEARCHED]
    assert [path.read_text() for path in configs] == [winners[0], old]
    assert tune(*words) == 0
    assert [path.read_text() for path in configs] == winners
