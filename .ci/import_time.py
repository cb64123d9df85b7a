"""What the command line and lint of 100 models cost in CPU time: the least of five says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = Path(__file__).parents[1] / "model_repository" / "emulated-accelerator"
MAIN = "import sys; from tuner.cli import main; sys.argv = ['tune', {}]; main()"
LIMITS_S = {"import tuner.cli": 0.25, MAIN.format("'--help'"): 0.25}
LINT_S, MODELS = 2.0, 100


def cpu_s(code: str) -> float:
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, code
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    slow = 0
    with tempfile.TemporaryDirectory() as repository:
        for number in range(MODELS):
            copy = shutil.copytree(MODEL, Path(repository) / f"model-{number}")
            config = copy / "config.pbtxt"
            config.write_text(config.read_text().replace(MODEL.name, copy.name))
        lint = MAIN.format(f"'lint', {repository!r}")
        for code, limit_s in {**LIMITS_S, lint: LINT_S}.items():
            least_s = min(cpu_s(code) for _ in range(5))
            print(f"{least_s:.3f} s  {code}")
            slow += least_s > limit_s
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
