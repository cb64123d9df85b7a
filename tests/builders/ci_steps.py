"""The shell steps of a workflow or an action, run as a runner does, in a checkout of a user's."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: A Python whose new environments see the packages that are installed here: nothing is downloaded.
PYTHON = """#!/bin/sh
{python} "$@" || exit
case "$1 $2" in "-m venv") echo {packages} > "$3"/lib/{version}/site-packages/here.pth ;; esac
"""


@dataclass
class Runner:
    """A runner with a checkout, a home and a temporary directory.

    Attributes:
        path: What earlier steps put before PATH.
        outputs: By step.
    """

    directory: Path
    path: list[str] = field(default_factory=list)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place in (self.checkout, self.directory / "home", self.directory / "temp"):
            place.mkdir(parents=True)
        program = self.directory / "bin" / "python"
        program.parent.mkdir()
        packages = sysconfig.get_path("purelib")
        version = Path(packages).parent.name
        program.write_text(PYTHON.format(python=sys.executable, packages=packages, version=version))
        program.chmod(0o755)
        program.with_name("python3").symlink_to("python")
        self.path.append(str(program.parent))

    @property
    def checkout(self) -> Path:
        return self.directory / "checkout"

    def bash(self, script: str, given: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Runs a script as GitHub does."""
        said, added = self.directory / "output", self.directory / "path"
        said.write_text("")
        added.write_text("")
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PATH": ":".join([*self.path, os.environ["PATH"]]),
            "PIP_NO_DEPS": "1",
            "PIP_NO_INDEX": "1",
            "HOME": str(self.directory / "home"),
            "RUNNER_TEMP": str(self.directory / "temp"),
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(said),
            "GITHUB_PATH": str(added),
            **given,
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.checkout,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.path = [*added.read_text().splitlines(), *self.path]
        return done

    def step(self, step: Mapping[str, Any], given: Mapping[str, str]) -> int:
        """Runs a step; of the values in its ``env``, those with expressions are ``given``."""
        literal = {k: v for k, v in step.get("env", {}).items() if "${{" not in v}
        done = self.bash(step["run"], {**literal, **given})
        said = (self.directory / "output").read_text().splitlines()
        self.outputs[step.get("id", step["name"])] = dict(line.split("=", 1) for line in said)
        print(f"== {step['name']}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.returncode
