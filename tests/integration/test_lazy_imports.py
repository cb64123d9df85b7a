"""The command line starts fast only while packages import what is heavy when they need it."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
    "search.study.record"
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
    assert (done.returncode, done.stderr) == (130, "stopped: nothing was begun\n")


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        (CONFIGS, "tritonclient grpc google.protobuf numpy"),
        (SEARCH, "optuna tritonclient sqlalchemy"),
        ("cli.run_command run.run run.series search.searching report.listing", "ray"),
    ],
)
def test_importing_loads_nothing_heavy(modules: str, heavy: str) -> None:
    command = [sys.executable, "-c", CODE, modules, heavy]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
