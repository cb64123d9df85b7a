"""What `pip install triton-tune` alone gives, without the run dependencies.

They are hidden here, as if they were not installed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from builders.runs import CONFIG, Toy, edit_config, make_run
from builders.soaked_runs import soaked_run

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "model_repository"
QUICKSTART = ROOT / "search_spaces" / "quickstart.yaml"
ALONE = """
import sys
from tuner.extras import MODULES, Extra
sys.modules |= {name: None for extra in map(Extra, EXTRAS) for name in MODULES[extra]}
from tuner.cli import main
main()
"""


def alone(
    *arguments: object, cwd: Path, without: tuple[str, ...] = ("run", "model-analyzer")
) -> subprocess.CompletedProcess[str]:
    code = ALONE.replace("EXTRAS", repr(without))
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ("lint", MODELS),
        ("models", MODELS),
        ("init", "bert-onnx", "--repository", MODELS),
        ("plan", QUICKSTART),
        ("schema",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_the_light_installation_reads_and_plans(
    arguments: tuple[object, ...], tmp_path: Path
) -> None:
    done = alone(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("error:")) == (0, 0), done.stderr
    assert done.stdout or "drafted" in done.stderr
    if arguments[0] == "plan":
        assert "space     284,476 configs at most" in done.stdout
        assert "tune run is not installed here" in done.stdout
        assert "-m pip install 'triton-tune[run]'" in done.stdout


def test_the_light_installation_reports_writes_and_takes_back(tmp_path: Path) -> None:
    run = make_run(tmp_path / "results", Toy(trials=12))
    config = tmp_path / "models" / "toy" / "config.pbtxt"
    (config.parent / "1").mkdir(parents=True)
    config.write_text(CONFIG)
    edit_config(run, path=str(config))
    result = run / "result.json"
    result.write_text(json.dumps({**json.loads(result.read_text()), "written": None}))

    assert "toy: Better: " in alone("report", run, cwd=tmp_path).stdout
    assert (run / "trials.csv").read_text().count("\n") == 13
    assert alone("apply", run, cwd=tmp_path).returncode == 0
    assert config.read_text() != CONFIG
    assert alone("rollback", "toy", "--repository", "models", cwd=tmp_path).returncode == 0
    assert config.read_text() == CONFIG


def test_the_light_installation_turns_a_run_into_replicas(tmp_path: Path) -> None:
    run, _ = soaked_run(tmp_path, 0.9)
    done = alone("size", run, "--rate", "1000/s", cwd=tmp_path)
    assert (done.returncode, "replicas" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("command", ["run", "check"])
def test_command_that_measures_names_the_missing_extra_before_writing_anything(
    command: str, tmp_path: Path
) -> None:
    done = alone(command, QUICKSTART, cwd=tmp_path)
    assert done.returncode == 4
    assert "error: this needs docker, grpc, optuna, " in done.stderr
    assert f"next:  {sys.executable} -m pip install 'triton-tune[run]'" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_nvidias_search_names_its_extra_before_anything_is_begun(tmp_path: Path) -> None:
    shutil.copy(QUICKSTART, spec := tmp_path / "spec.yaml")
    text = spec.read_text().replace("../model_repository", str(MODELS))
    spec.write_text(f"{text}\nsearch: {{strategy: model-analyzer}}\n")
    done = alone("run", spec, cwd=tmp_path, without=("model-analyzer",))
    assert done.returncode == 4
    assert "error: this needs model_analyzer, which is not installed" in done.stderr
    assert "-m pip install 'triton-tune[model-analyzer]'" in done.stderr
    assert list(tmp_path.iterdir()) == [spec]


def test_the_doctor_names_the_extra(tmp_path: Path) -> None:
    done = alone("doctor", cwd=tmp_path)
    assert done.returncode == 4
    assert "FIX   run dependencies: this needs docker, grpc, " in done.stdout
    assert "-m pip install 'triton-tune[run]'" in done.stdout
