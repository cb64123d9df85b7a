from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from synthetic import synthetic_server

from tuner.load.command import Target
from tuner.load.generator import Window
from tuner.load.inputs import InputFiles
from tuner.load.measurement import Arrivals, LoadPoint
from tuner.load.perf_analyzer import MAX_EXPORT_BYTES, PerfAnalyzer
from tuner.load.tensors import TensorShape
from tuner.spec.workload import RandomInputs
from tuner.triton.server import Endpoints
from tuner.triton.statistics import StatisticsSnapshot

if TYPE_CHECKING:
    from tuner.load.measurement import Measurement

X = TensorShape("x", "FP32", (4,))
WINDOW = Window(duration_s=2.0, warmup_s=0.5, deadline_s=30.0, tail_s=0.5)


def test_the_warm_up_of_large_requests_has_a_window_and_inputs_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a response cache would know the inputs of the measurement already."""
    runs: list[tuple[float, set[str]]] = []

    def by_window(run: object) -> Measurement:
        steps = json.loads(run.given.path.read_text())["data"]  # type: ignore[attr-defined]
        runs.append((run.window.total_s, {s["x"]["b64"] for s in steps}))  # type: ignore[attr-defined]
        return synthetic_server(100.0, 1000.0)

    monkeypatch.setattr("tuner.load.perf_analyzer._Run.by_window", by_window)
    tool = PerfAnalyzer(
        binary=Path("perf_analyzer"),
        environment={},
        target=Target("m", Endpoints("h", "g", None)),
        inputs=InputFiles(RandomInputs(kind="random"), [X], tmp_path),
        directory=tmp_path,
        request_export_bytes=MAX_EXPORT_BYTES,
        snapshot=StatisticsSnapshot,
        scrape=lambda: None,
    )
    tool.measure(LoadPoint(Arrivals.POISSON, 100.0), WINDOW, seed=1)
    (warmup_s, warmup), (measured_s, measured) = runs
    assert (warmup_s, measured_s) == (WINDOW.warmup_s, WINDOW.duration_s)
    assert len(measured) >= 200
    assert not warmup & measured
