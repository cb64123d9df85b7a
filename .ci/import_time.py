"""What the command line and lint of 100 models cost, in CPU time of some fixed work in Python.

The least of five runs of each, so that neither a slow machine nor a busy one decides.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = Path(__file__).parents[1] / "model_repository" / "emulated-accelerator"
MAIN = "import sys; from tuner.cli import main; sys.argv = ['tune', {}]; main()"
#: The unit: a tenth of a second on a fast core.
WORK = "import argparse, ast, inspect; [ast.parse(inspect.getsource(argparse)) for _ in range(2)]"
LIMITS = {"import tuner.cli": 2.5, MAIN.format("'--help'"): 2.5}
LINT, MODELS = 20.0, 100


def cpu_s(code: str) -> float:
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, code
    return usage.ru_utime + usage.ru_stime


def least_s(code: str) -> float:
    return min(cpu_s(code) for _ in range(5))


def main() -> int:
    slow = 0
    with tempfile.TemporaryDirectory() as repository:
        for number in range(MODELS):
            copy = shutil.copytree(MODEL, Path(repository) / f"model-{number}")
            config = copy / "config.pbtxt"
            config.write_text(config.read_text().replace(MODEL.name, copy.name))
        lint = MAIN.format(f"'lint', {repository!r}")
        unit_s = least_s(WORK)
        print(f"{unit_s:.3f} s  {WORK}")
        for code, limit in {**LIMITS, lint: LINT}.items():
            code_s = least_s(code)
            print(f"{code_s:.3f} s, {code_s / unit_s:.1f} of {limit} units  {code}")
            slow += code_s > limit * unit_s
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
