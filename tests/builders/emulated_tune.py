"""`tune` as a program whose server and load generator are emulated: a whole run takes seconds.

Searching, proving, writing back and reporting are the product's own. Run as
``python -c "from builders.emulated_tune import main; main()" run SPEC``.

Variables: ``EMULATED_PAUSE_S``, how long each measurement takes; ``EMULATED_CPU``, another
machine's CPU; ``EMULATED_DEPLOYED``, a file that gets a line for each config that the search tries.
``EMULATED_BENCHES``, how many benches have a line there before any of them tries a second config.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from builders.emulated import EmulatedBench
from builders.jobs import Facts, serving
from builders.searches import served
from builders.waits import wait_until

from tuner.cli import main as tune
from tuner.meter import session
from tuner.run import bench_side, run
from tuner.search import cores
from tuner.space.candidate import Candidate
from tuner.spec.slo import Slo

MODEL = "emulated-accelerator"
#: The last of its fields has no effect; it makes the space larger.
SPEC = """\
model: emulated-accelerator
repository: repository
slo: [p99_latency <= 40ms]
space:
  instance_group.count: {int: [1, 4]}
  optimization.gather_kernel_buffer_threshold: {choice: [8, 16, 32]}
search: {strategy: random}
budget: {trials: %d}
"""


class Machine(Facts):
    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "cpu": os.environ.get("EMULATED_CPU", "a cpu")}


class PausingBench(EmulatedBench):
    """Takes its time, and heeds a stop as the real one does."""

    def __init__(self, slos: Sequence[Slo], checkpoint: Any) -> None:
        super().__init__(served, slos=slos)
        self.checkpoint = checkpoint

    def deploy(
        self, candidate: Candidate, *, fresh: bool = False, in_production: bool = False
    ) -> Any:
        if not fresh and (path := os.environ.get("EMULATED_DEPLOYED")):
            with Path(path).open("a") as file:
                file.write(f"{os.getpid()} {candidate.key}\n")
            self._await_other_benches(Path(path))
        return super().deploy(candidate, fresh=fresh)

    def _await_other_benches(self, path: Path) -> None:
        def processes() -> list[str]:
            return [line.split()[0] for line in path.read_text().splitlines()]

        if processes().count(str(os.getpid())) > 1:
            benches = int(os.environ.get("EMULATED_BENCHES", "1"))
            wait_until(lambda: len({*processes()}) >= benches, 120)

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Any:
        self.checkpoint()
        time.sleep(float(os.environ.get("EMULATED_PAUSE_S", "0.05")))
        return super().measure(level, seed, least_s)


@contextmanager
def find_programs(*_: object) -> Iterator[Any]:
    yield Machine()


@contextmanager
def set_up_bench(of: Any, _: object, __: object, checkpoint: Any, *___: object) -> Iterator[Any]:
    yield PausingBench(of.job.spec.slos, checkpoint)


def emulate() -> None:
    """Replaces all programs in this process."""
    for program in (run, bench_side):
        for name, value in {
            "find_programs": find_programs,
            "host_of": lambda *_: Machine(),
            "serving": serving,
        }.items():
            setattr(program, name, value)
    setattr(session, "set_up_bench", set_up_bench)  # noqa: B010 - as above
    setattr(cores, "may_be_first", lambda: False)  # noqa: B010 - as above


def main() -> None:
    emulate()
    tune()
