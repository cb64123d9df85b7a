"""`tune completion`, read by the shells themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
#: What a bash at its prompt does with the words typed so far; the last is to be completed.
ASK = """
eval "$(tune completion bash)"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
COMPREPLY=()
$(complete -p tune | sed 's/.*-F \\([^ ]*\\).*/\\1/') tune
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    program = tmp_path / "bin" / "tune"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom tuner.cli import main\nmain()\n")
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


def test_bash_offers_commands_options_and_specs(environment: dict[str, str]) -> None:
    def offered(*words: str) -> list[str]:
        command = ["bash", "--norc", "-c", ASK, "bash", "tune", *words]
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    assert offered("roll") == ["rollback"]
    assert offered("check", "--up") == ["--update-baseline"]
    assert offered("plan", "search_spaces/qu") == ["search_spaces/quickstart.yaml"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_can_read(environment: dict[str, str], shell: str) -> None:
    command = ["tune", "completion", shell]
    script = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert f"_TUNE_COMPLETE={shell}_complete" in script.stdout
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=script.stdout, text=True, check=True)
