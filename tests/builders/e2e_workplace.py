"""A small job on a real server: short windows, one load level, so that a run takes seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from builders.waits import wait_until

REPOSITORY = Path(__file__).parents[2] / "model_repository"
MODEL = "emulated-accelerator"
_MARK = "TUNE_E2E_WORKPLACE"
#: On a quiet machine a run here takes 10 to 80 s. It waits for bursts of steal time to pass,
#: though, up to a minute for each load, and that is no failure.
_PATIENCE_S = 540
SPEC = """\
model: emulated-accelerator
repository: repository
workload:
  arrivals: {kind: closed, concurrency: [8], restarts: 1}
  window: 1s
  warmup: 200ms
slo:
  - p90_latency <= %(p90)s
objective: maximize goodput
space:
  dynamic_batching: {choice: [off, on]}
%(more)sbudget: {trials: %(trials)d}
confirm: {finalists: 1, soak: 3s}
"""
#: Of a model of the test's own: batching is all there is to choose.
BATCHING = """\
model: %s
repository: repository
workload:
  arrivals: {kind: closed, concurrency: [8], restarts: 1}
  window: 1s
  warmup: 200ms
slo: [p90_latency <= 300ms]
objective: maximize goodput
space:
  dynamic_batching: {choice: [off, on]}
budget: {trials: 2}
confirm: {finalists: 1, soak: 3s}
"""


@dataclass(frozen=True)
class Workplace:
    """A directory with a repository of its own, and `tune` to run in it.

    Attributes:
        program: Python code that is `tune`.
        environment: Further variables for it.
    """

    directory: Path
    program: str = "from tuner.cli import main; main()"
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.directory / "repository" / MODEL / "config.pbtxt"

    def spec(self, *, p90: str = "100ms", trials: int = 4) -> Path:
        """Up to two trials there is only batching to choose, which is quick to prove."""
        path = self.directory / "spec.yaml"
        more = "  instance_group.count: {int: [1, 2]}\n" if trials > 2 else ""
        path.write_text(SPEC % {"p90": p90, "trials": trials, "more": more})
        return path

    def place(self, model: str, code: str, config: str | None = None) -> Path:
        """A Python model of the test's own, and a spec to find out whether it is to batch.

        Returns:
            The model's directory; the spec is `spec.yaml`.
        """
        directory = self.directory / "repository" / model
        (directory / "1").mkdir(parents=True)
        (directory / "1" / "model.py").write_text(code)
        if config is not None:
            (directory / "config.pbtxt").write_text(config)
        (self.directory / "spec.yaml").write_text(BATCHING % model)
        return directory

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", self.program, *arguments],
            cwd=self.directory,
            env={**os.environ, **self.environment, _MARK: str(self.directory)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def tune(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.finish(self.start(*arguments))

    def improve(self, spec: str) -> subprocess.CompletedProcess[str]:
        """Tunes by a spec; the run ends with a better config."""
        (self.directory / "spec.yaml").write_text(spec)
        done = self.tune("run", "spec.yaml")
        assert done.returncode == 0, (done.stderr, self.result())
        assert self.result()["status"] == "improved"
        return done

    def finish(self, process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
        """Waits for its end. What takes too long is killed, so that nothing outlives the test."""
        try:
            out, err = process.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @property
    def run(self) -> Path:
        """The only run there is."""
        (manifest,) = (self.directory / "results").glob("*/manifest.json")
        return manifest.parent

    def result(self) -> dict[str, Any]:
        data = json.loads((self.run / "result.json").read_text())
        assert isinstance(data, dict)
        return data

    def trials(self) -> list[dict[str, Any]]:
        """Of the run, without a torn last line; none where it ended before the first one."""
        path = self.run / "trials.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def wait_for_trials(self, count: int) -> None:
        def there() -> bool:
            files = list((self.directory / "results").glob("*/trials.jsonl"))
            return bool(files) and len(files[0].read_text().splitlines()) >= count

        wait_until(there, _PATIENCE_S)

    def children(self, name: str = "") -> list[psutil.Process]:
        """Every process that was started for this workplace, by whatever way, and still lives."""
        return [
            process
            for process in psutil.process_iter(["name"])
            if self._ours(process) and name in process.info["name"]
        ]

    def _ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(_MARK) == str(self.directory)
        except psutil.Error:
            return False
