"""A place to check on: an emulated bench, a machine of toys, a directory of results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.emulated import EmulatedBench
from builders.jobs import serving
from builders.measurements import synthetic_server
from builders.model_files import copy_examples

from tuner.check import check as steps
from tuner.check.check import check
from tuner.load.seeds import CONFIRMATION_FROM
from tuner.machine.host import Gpu, Host
from tuner.measurement.measurement import LoadPoint, Measurement
from tuner.meter import session
from tuner.prepare.job import Job, Request
from tuner.prepare.serving import Serving
from tuner.progress.events import Silent
from tuner.report.check_document import render_check

ROOT = Path(__file__).parents[2]
MODEL = "emulated-accelerator"
CLOSED = "{kind: closed, concurrency: [8, 16], restarts: 1}"


class ToyBench(EmulatedBench):
    """Each server has a capacity about the machine's; ``requests`` are enough for a percentile."""

    def __init__(
        self,
        job: Job,
        capacity: float = 100.0,
        servers_cv: float = 0.003,
        fails: Exception | None = None,
        requests: int = 5000,
        random: Any = None,
    ) -> None:
        current = job.space.current
        troubles = {current: [fails] * 99} if fails else {}
        super().__init__(
            {current: capacity}, slos=job.spec.slos, arrivals=job.plan.arrivals, troubles=troubles
        )
        self.job, self.requests, self.alone_s = job, requests, 0.006
        self._servers_cv, self._luck = servers_cv, random or np.random.default_rng(4)

    @property
    def fresh_servers(self) -> int:
        return sum(fresh for _, fresh in self.deployed)

    @property
    def levels(self) -> list[float]:
        return [a.level for a in self.loads]

    def luck(self) -> float:
        return float(np.exp(self._servers_cv * self._luck.normal()))

    def reading(self, level: float, seed: int) -> Measurement:
        assert seed >= CONFIRMATION_FROM  # not those of any search
        measurement = synthetic_server(level, self.serves * self.kindness(seed))
        served = measurement.throughput_infer_per_s if self.arrivals.open_loop else self.serves
        return replace(
            measurement,
            load=LoadPoint(self.arrivals, level),
            throughput_infer_per_s=served,
            completed_count=self.requests,
        )


class ToyPrograms:
    def __init__(self, gpu: str) -> None:
        self.host = Host(
            "Toy CPU", 2, 8 << 30, "6.1", 0.1, None, (Gpu(0, gpu, "u", 1 << 34, "550"),)
        )

    def versions(self) -> dict[str, str]:
        return {"tune": "0", "tritonserver": "2.51.0", "perf_analyzer": "2.51.0"}

    def fingerprint(self) -> str:
        return self.host.fingerprint("2.51.0")


class Noting(Silent):
    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def note(self, text: str) -> None:
        self.notes.append(text)


@dataclass(frozen=True)
class Done:
    """A check that ended; ``facts`` as `check.json` has them."""

    directory: Path
    facts: dict[str, Any]
    exit_code: int


@dataclass
class Place:
    """A results directory, and a machine to check on.

    ``nights``: how many alike ones an accepted result has, as if it were older.
    """

    directory: Path
    monkeypatch: pytest.MonkeyPatch
    text: str
    gpu: str = "Toy GPU"
    bench_of: Callable[..., ToyBench] = ToyBench
    checks: int = 0
    nights: int = 7

    @property
    def results(self) -> Path:
        return self.directory / "results"

    def check(
        self,
        *,
        accept: bool = False,
        any_machine: bool = False,
        overrides: tuple[str, ...] = (),
        **bench: Any,
    ) -> Done:
        spec = self.directory / "spec.yaml"
        spec.write_text(self.text)
        request = Request(spec=spec, output=self.results, overrides=overrides)
        self.checks += 1  # the same arrivals in every run of a test
        self.monkeypatch.setattr(steps, "new_run_id", lambda what: f"{what}-{self.checks}")
        self.monkeypatch.setattr(steps, "find_programs", self._find_programs)
        self.monkeypatch.setattr(steps, "serving", serving)
        self.monkeypatch.setattr(
            session, "set_up_bench", lambda served, *_: self._bench_on(served, bench)
        )
        self.notes: list[str] = []
        events = Noting(self.notes)
        facts = check(request, events, render_check, accept=accept, any_machine=any_machine)
        if facts.accepted:
            path = Path(facts.accepted)
            later = {f"2025-01-{day:02}": 1.0 for day in range(2, self.nights + 1)}
            path.write_text(json.dumps(json.loads(path.read_text()) | {"later": later}))
        return Done(self.results / facts.run_id, facts.to_json(), facts.exit_code)

    @contextmanager
    def _find_programs(self, *_: Any) -> Iterator[ToyPrograms]:
        yield ToyPrograms(self.gpu)

    @contextmanager
    def _bench_on(self, served: Serving, bench: dict[str, Any]) -> Iterator[ToyBench]:
        self.bench = self.bench_of(served.job, **bench)
        self.said_first = list(self.notes)
        yield self.bench


def place_in(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """For the quickstart's spec, and a model of its own, since a check locks its directory."""
    text = (ROOT / "search_spaces" / "quickstart.yaml").read_text()
    models = directory / "models"
    copy_examples(models, MODEL)
    return Place(directory, monkeypatch, text.replace("../model_repository", str(models)))
