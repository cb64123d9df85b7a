"""Runs whose search is random, and benches that workers may share."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from builders.emulated import EmulatedBench
from builders.jobs import a_job
from builders.searches import served

from tuner.bench.events import Silent
from tuner.bench.job import Job, Request
from tuner.bench.session import Session
from tuner.bench.timebook import TimeBook
from tuner.record.store import STUDY
from tuner.run.open_run import OpenRun
from tuner.space.candidate import Candidate

SPEC = """\
model: emulated-accelerator
repository: {repository}
slo: [p99_latency <= 40ms]
space:
  instance_group.count: {{int: [1, 4]}}
  dynamic_batching.max_queue_delay_microseconds: {{choice: [0, 100, 1000]}}
search: {{strategy: random}}
budget: {{trials: 9}}
"""


def a_random_search(directory: Path) -> Job:
    return a_job(directory, SPEC)


class SlowBench(EmulatedBench):
    """Every candidate that anybody deploys goes into ``deployed``."""

    def __init__(self, deployed: list[Candidate]) -> None:
        super().__init__(served)
        self.tried = deployed

    def deploy(
        self, candidate: Candidate, *, fresh: bool = False, in_production: bool = False
    ) -> Any:
        if not fresh:
            self.tried.append(candidate)
            time.sleep(0.02)
        return super().deploy(candidate)


def owned(job: Job, bench: EmulatedBench) -> Session:
    return Session(job, bench, Silent(), TimeBook(), lambda: None)


def answered(run: OpenRun) -> None:
    """The run has said what its files hold, since another worker asked before."""
    assert run.searcher._record is not None
    run.searcher._record.set_fact("files", "asked")
    run.searcher.next()


def url_of(run: OpenRun) -> str:
    """Of a run that has its own study."""
    return f"sqlite:///{run.store.directory / STUDY}"


def request_of(job: Job, tmp_path: Path, **more: Any) -> Request:
    return Request(job.loaded.path, output=tmp_path / "results", **more)
