"""docs/nightly.sh and the gate of nightly.yml, with a `tune` that only notes how it was called."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
TUNE = """\
#!/bin/sh
echo "$*" >> "$CALLS"
case $1 in doctor) exit "${DOCTOR:-0}" ;; check) exit "$CHECK" ;; run) exit "${RUN:-0}" ;; esac
"""


def night(tmp_path: Path, **codes: str) -> tuple[int, list[str]]:
    """The exit code, and how `tune` was called."""
    program, calls = tmp_path / "tune", tmp_path / "calls"
    program.write_text(TUNE)
    program.chmod(0o755)
    environment = {**os.environ, **codes, "CALLS": str(calls)}
    environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    script = [str(ROOT / "docs" / "nightly.sh"), "my spec.yaml", "out"]
    done = subprocess.run(script, env=environment, check=False)
    return done.returncode, calls.read_text().splitlines()


CHECKED = ["check my spec.yaml --output out"]
SEARCHED = "run my spec.yaml --output out --no-write --progress plain"


@pytest.mark.parametrize("code", ["0", "11", "1", "130"])
def test_night_without_a_regression_only_checks(tmp_path: Path, code: str) -> None:
    assert night(tmp_path, CHECK=code) == (int(code), CHECKED)


@pytest.mark.parametrize("code", ["10", "12"])
@pytest.mark.parametrize("run", ["0", "10", "11", "5"])
def test_night_with_a_regression_searches_and_ends_as_the_check_did(
    tmp_path: Path, code: str, run: str
) -> None:
    assert night(tmp_path, CHECK=code, RUN=run) == (int(code), [*CHECKED, SEARCHED])


def test_forced_search_stays_within_the_given_time(tmp_path: Path) -> None:
    code, calls = night(tmp_path, CHECK="0", TUNE_ANYWAY="1", TUNE_TIME="20m")
    assert (code, calls[-1]) == (0, f"{SEARCHED} --time-budget 20m")
    assert night(tmp_path, CHECK="0", TUNE_ANYWAY="1", RUN="5")[0] == 5


def test_forced_search_follows_a_check_without_an_answer(tmp_path: Path) -> None:
    assert night(tmp_path, CHECK="11", TUNE_ANYWAY="1") == (11, [*CHECKED, SEARCHED])
    assert night(tmp_path, CHECK="2", TUNE_ANYWAY="1")[0] == 2


def test_missing_program_is_reported_with_its_fix(tmp_path: Path) -> None:
    code, calls = night(tmp_path, DOCTOR="4", CHECK="4")
    assert (code, calls) == (4, [*CHECKED, "doctor my spec.yaml --output out"])


@pytest.mark.parametrize(
    ("changes", "passes"),
    [
        ({}, True),
        ({"CODE": "12"}, False),
        ({"CODE": "12", "PROPOSE": "success"}, False),
        ({"CODE": "11"}, False),
        ({"CODE": ""}, False),
        ({"CHECK": "skipped"}, False),
        ({"UPLOAD": "failure"}, False),
    ],
)
def test_the_gate_lets_nothing_pass_that_did_not_run(changes: dict[str, str], passes: bool) -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())
    (step,) = workflow["jobs"]["gate"]["steps"]
    good = {"CHECK": "success", "CODE": "0", "PROPOSE": "skipped"}
    environment = {**os.environ, **good, "UPLOAD": "success", **changes}
    command = ["bash", "-e", "-o", "pipefail", "-c", step["run"]]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert (done.returncode == 0) is passes, done.stdout
    assert ("::error::" in done.stdout) is not passes
