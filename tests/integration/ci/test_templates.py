"""Workflow, pipeline, action and hooks in a repository of a user's, with a wheel of the project."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.e2e_workplace import MODEL, SPEC
from builders.model_files import copy_examples

#: A Python whose new environments see the packages that are installed here: nothing is downloaded.
PYTHON = """#!/bin/sh
{python} "$@" || exit
[ "$1" != -I ] || shift
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

    def bash(
        self, script: str, given: Mapping[str, str], where: str = "checkout"
    ) -> subprocess.CompletedProcess[str]:
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
            cwd=self.directory / where,
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
        where = {"${{ runner.temp }}": "temp", None: "checkout"}[step.get("working-directory")]
        done = self.bash(step["run"], {**literal, **given}, where)
        said = (self.directory / "output").read_text().splitlines()
        self.outputs[step.get("id", step["name"])] = dict(line.split("=", 1) for line in said)
        print(f"== {step['name']}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.returncode


pytestmark = [pytest.mark.integration, pytest.mark.long]

ROOT = Path(__file__).parents[3]

BROKEN = ("max_batch_size: 16", "max_batch_size: -1")

#: A measurement lasts 1.5 times the limit longer. The model takes more than 5 ms, the client less.
GOOD, IMPOSSIBLE = "2s", "4ms"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    shutil.copytree(ROOT / "tuner", source / "tuner")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", str(made), "."]
    subprocess.run(command, cwd=source, check=True)
    (built,) = made.glob("triton_tune-*.whl")
    return built


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A checkout of a model repository and a spec, and nothing of the project."""
    runner = Runner(tmp_path)
    copy_examples(runner.checkout / "repository", MODEL)
    write_spec(runner, GOOD)
    subprocess.run(["git", "init", "-q", str(runner.checkout)], check=True)
    subprocess.run(["git", "-C", str(runner.checkout), "add", "."], check=True)
    return runner


def write_spec(runner: Runner, p90: str) -> None:
    text = SPEC % {"p90": p90, "trials": 2, "more": "check: {rounds: 3}\n"}
    (runner.checkout / "spec.yaml").write_text(text)


def break_config(runner: Runner) -> None:
    config = runner.checkout / "repository" / MODEL / "config.pbtxt"
    text = config.read_text()
    assert BROKEN[0] in text
    config.write_text(text.replace(*BROKEN))


def night(runner: Runner, package: str, accept: str = "") -> dict[str, str]:
    """Every step of the job `nightly`, as its conditions say; what the gate is told of them."""
    workflow = yaml.load((ROOT / ".github/workflows/nightly.yml").read_text(), yaml.BaseLoader)
    given = {"PACKAGE": package, "SPEC": "spec.yaml", "ACCEPT": accept}
    outcome = {"CHECK": "", "CODE": "", "PROPOSE": "skipped", "UPLOAD": "success"}
    for step in workflow["jobs"]["nightly"]["steps"]:
        if "run" not in step or ("if" in step and outcome["CODE"] not in ("10", "12")):
            continue
        failed = runner.step(step, given)
        if "id" in step:
            outcome[step["id"].upper()] = "failure" if failed else "success"
            outcome["CODE"] = runner.outputs[step["id"]].get("code", outcome["CODE"])
        if failed:
            break
    (gate,) = workflow["jobs"]["gate"]["steps"]
    return {**outcome, "gate": str(runner.step(gate, outcome))}


def test_the_nightly_passes_with_a_good_config_and_no_other(runner: Runner, wheel: Path) -> None:
    outcome = night(runner, str(wheel), "--update-baseline")
    assert (outcome["CODE"], outcome["gate"]) == ("0", "0")
    assert list((runner.directory / "home" / "tune-baselines").iterdir()) != []
    installed = runner.directory / "temp" / "venv"
    where = runner.bash("python -c 'import tuner; print(tuner.__file__)'", {}).stdout
    assert where.startswith(str(installed))

    write_spec(runner, IMPOSSIBLE)
    outcome = night(runner, str(wheel))
    assert (outcome["CODE"], outcome["PROPOSE"], outcome["gate"]) == ("10", "success", "1")

    (runner.checkout / "spec.yaml").unlink()
    outcome = night(runner, str(wheel))
    assert (outcome["CODE"], outcome["PROPOSE"], outcome["gate"]) == ("2", "skipped", "1")


def test_a_nightly_without_a_package_does_not_pass(runner: Runner) -> None:
    assert night(runner, "")["gate"] == "1"


def test_the_gitlab_pipeline_ends_as_its_check_did(runner: Runner, wheel: Path) -> None:
    document = (ROOT / "docs" / "nightly.md").read_text()
    (block,) = re.findall(r"```yaml\n(# \.gitlab-ci\.yml.*?)```", document, flags=re.DOTALL)
    pipeline, image = yaml.safe_load(block), pipeline_venv(runner)
    given = {"TUNE_SPEC": "spec.yaml", "TUNE_PACKAGE": str(wheel), **image}

    def ended(job: str, **changes: str) -> int:
        before = pipeline[job].get("before_script", pipeline[".tune"]["before_script"])
        script = "\n".join([*before, *pipeline[job]["script"]])
        return runner.bash(script, {**given, **changes}).returncode

    assert ended("check", TUNE_PACKAGE="") != 0
    assert ended("gate") == 1
    write_spec(runner, IMPOSSIBLE)
    assert ended("check") == 0
    assert ended("propose") == 0
    assert list(runner.checkout.glob("results/*/result.json")) != []
    assert ended("gate") == 10
    (runner.checkout / "results" / "check.code").write_text("0\n")
    assert ended("gate") == 0


def pipeline_venv(runner: Runner) -> dict[str, str]:
    """A Python of its own, as the image of the pipeline is."""
    venv = runner.directory / "image"
    assert runner.bash(f"python -m venv {venv}", {}).returncode == 0
    runner.path.insert(0, str(venv / "bin"))
    return {"GITHUB_ACTIONS": ""}


def acted(
    runner: Runner, wheel: Path, variables: Mapping[str, str] | None = None, **inputs: str
) -> int:
    """The steps of the action, as their conditions say, until one fails."""
    action = yaml.load((ROOT / "action.yml").read_text(), yaml.BaseLoader)
    given = {name: entry.get("default", "") for name, entry in action["inputs"].items()}
    given |= {name.replace("_", "-"): value for name, value in inputs.items()}
    for step in action["runs"]["steps"]:
        condition = re.fullmatch(r"inputs\.(\S+) != ''", step.get("if", "inputs.- != ''"))
        assert condition is not None
        if given.get(condition[1], "always"):
            inputs_of_step = {n: re.sub(r"\${{ inputs\.(\S+) }}", lambda m: given[m[1]], text)
                     for n, text in step["env"].items()}  # fmt: skip
            job = {"GITHUB_ACTION_PATH": str(wheel), **(variables or {})}
            code = runner.step({**step, "env": inputs_of_step}, job)
            if code:
                return code
    return 0


def test_the_action_fails_with_errors_in_the_repository(runner: Runner, wheel: Path) -> None:
    assert acted(runner, wheel, repository="repository", lint_options="--no-weights") == 0
    assert acted(runner, wheel) == 1
    assert acted(runner, wheel, repository="nowhere") != 0
    assert acted(runner, wheel, spec="nowhere.yaml") == 2
    assert acted(runner, wheel, spec="spec.yaml", check_options="--help") == 0
    break_config(runner)
    assert acted(runner, wheel, repository="repository") == 2


@pytest.mark.parametrize("variables", [{}, {"PYTHONPATH": "."}], ids=["alone", "PYTHONPATH"])
def test_the_action_runs_no_code_of_the_repository_that_it_lints(
    runner: Runner, wheel: Path, variables: dict[str, str]
) -> None:
    """The steps are the action's own; pip installs a wheel, whose dependencies are here already."""
    ran = runner.directory / "ran"
    evil = f"open({str(ran)!r}, 'a').write(__file__ + '\\n')\n"
    modules = ("venv", "pip", "ensurepip", "argparse", "logging", "subprocess", "sitecustomize")
    for name in (*modules, "usercustomize", "click", "json", "yaml", "setup"):
        (runner.checkout / f"{name}.py").write_text(evil)
    for package in ("tuner", "setuptools", "tritonclient"):
        (runner.checkout / package).mkdir()
        (runner.checkout / package / "__init__.py").write_text(evil)
    (runner.checkout / "setup.cfg").write_text("[install]\nprefix = nowhere\n")
    (runner.checkout / "pip.conf").write_text("[global]\nindex-url = http://127.0.0.1:9\n")
    clean = acted(runner, wheel, variables, repository="repository", lint_options="--no-weights")
    broken = acted(runner, wheel, variables, spec="nowhere.yaml")
    assert not ran.exists(), ran.read_text()
    assert (clean, broken) == (0, 2)


def test_hooks_are_run_as_pre_commit_runs_them(runner: Runner, wheel: Path) -> None:
    lint, check = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    given = pipeline_venv(runner)
    assert runner.bash(f"pip install {wheel}", given).returncode == 0

    def hooked(hook: dict[str, str], *arguments: str) -> int:
        names = ["repository/m/config.pbtxt"] if hook.get("pass_filenames", True) else []
        words = [*shlex.split(hook["entry"]), *(arguments or hook.get("args", [])), *names]
        return runner.bash(shlex.join(words), given).returncode

    assert hooked(lint) != 0  # there is no model_repository here: a wrong path does not pass
    assert hooked(lint, "repository") == 0
    assert hooked(check) == 2
    break_config(runner)
    assert hooked(lint, "repository") == 2
