"""The command line starts fast only while packages import what is heavy when they need it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders.emulated_tune import MODEL, SPEC
from builders.model_files import copy_examples

pytestmark = pytest.mark.integration

CODE = """
import importlib, sys
modules, heavy = (words.split() for words in sys.argv[1:])
for name in modules:
    importlib.import_module(f"tuner.{name}")
print(*sorted({*heavy} & set(sys.modules)))
"""
CONFIGS = "modelconfig.edit modelconfig.files modelconfig.message modelconfig.rules lint.repository"
SEARCH = (
    "space.build space.draft search.budget search.incumbent search.optuna_trial "
    "search.searcher search.strategies.registry search.strategies.designs "
    "search.study"
)

ON_RAY = (
    "cli.run_command run.run run.on_benches run.bench_side run.series search.beside report.listing"
)


INTERRUPTED = """
import sys
class Finder:
    def find_spec(name, *_):
        if name == "click":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder)
from tuner.cli import main
"""


def test_ctrl_c_while_the_program_is_imported_ends_in_words() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "stopped before anything started\n")


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        (CONFIGS, "tritonclient grpc google.protobuf numpy"),
        (SEARCH, "optuna tritonclient sqlalchemy"),
        (ON_RAY, "ray"),
    ],
)
def test_importing_loads_nothing_heavy(modules: str, heavy: str) -> None:
    command = [sys.executable, "-c", CODE, modules, heavy]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


RUN = """
import sys
from builders.emulated_tune import emulate, tune
emulate()
try:
    tune()
finally:
    print(*sorted({"ray"} & set(sys.modules)), file=sys.stderr)
"""


def test_a_run_on_one_bench_imports_no_ray(tmp_path: Path) -> None:
    copy_examples(tmp_path / "repository", MODEL)
    (tmp_path / "spec.yaml").write_text(SPEC % 2)
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", RUN, "run", "spec.yaml", "--progress", "none", "--format", "json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tests}{os.pathsep}{tests.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout)["status"] in ("improved", "kept"), done.stderr
    assert done.stderr.split("\n")[-2] == ""
