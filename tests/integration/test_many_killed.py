"""Fifty models in one command, with emulated measurements, killed in the middle and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders.series import make_specs, runs_of, series_in
from builders.waits import wait_until

TESTS = Path(__file__).parents[1]

#: `tune run` with the emulated programs of `Workplace`, a little slow.
PROGRAM = """
import sys, time
from pathlib import Path
import pytest
from builders.workplace import Workplace

monkeypatch = pytest.MonkeyPatch()
here = Path(sys.argv[1])
place = Workplace(here / sys.argv[2], monkeypatch)
import os
os.environ["XDG_STATE_HOME"] = str(here / "state")  # of one user, who resumes what he began
os.chdir(here)
place.bench.then = {n: lambda: time.sleep(0.02) for n in range(1000)}
sys.exit(place.tune(*sys.argv[3:], "--progress", "none"))
"""


@pytest.mark.long
def test_fifty_emulated_models_killed_in_the_middle_and_resumed_none_is_lost_and_none_is_twice(
    tmp_path: Path,
) -> None:
    names, results = make_specs(tmp_path, 50), tmp_path / "results"

    def start(scratch: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path), scratch]
        paths = os.pathsep.join([str(TESTS), str(TESTS.parent)])
        (tmp_path / scratch).mkdir()
        return subprocess.Popen(
            [*command, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def trials() -> dict[str, str]:
        return {p.parent.name: p.read_text() for p in results.glob("*/trials.jsonl")}

    process = start("first", "run", "specs/*.yaml")
    wait_until(lambda: len(trials()) >= 25, 200)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    before = trials()
    directory = series_in(results)
    assert 25 <= len(before) < 50

    resumed = start("second", "run", "--resume", str(directory), "--format", "json")
    out, err = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, err
    runs = json.loads(out)["runs"]
    assert [r["name"] for r in runs] == names == runs_of(results)
    assert {r["status"] for r in runs} == {"improved"}
    after = trials()
    assert sorted(after) == sorted(r["run"] for r in runs)
    assert all(after[name].startswith(kept) for name, kept in before.items())
    assert all(len(text.splitlines()) == 2 for text in after.values())
