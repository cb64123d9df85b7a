"""A latency on its way from perf_analyzer to a run's directory: five forms, and none in between."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from builders.candidates import candidate_of
from builders.measurements import P99_40MS

from tuner.load.latency import measurement_of, observe_open
from tuner.load.perf_analyzer import outputs
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window
from tuner.run.store import TRIALS, RunStore
from tuner.score.point import judge_point
from tuner.score.trial import Trial, TrialState

WINDOW = Window(duration_s=1.0, warmup_s=1.0, deadline_s=10.0)
LOAD = LoadPoint(Arrivals.POISSON, 100.0)
DUE_S = np.arange(250) / 100.0
START_NS = 1_795_000_000_000_000_000


def test_the_p99_of_a_trial_is_that_of_the_time_stamps_in_the_export(tmp_path: Path) -> None:
    """Of the hundred requests due in the window one takes 1 ms, one 2 ms, and so on."""
    sent_ns = START_NS + np.rint(1e9 * DUE_S).astype(np.int64)
    answered_ns = sent_ns + (1 + np.arange(250) % 100) * 1_000_000
    requests = ",".join(
        f'{{"timestamp":{sent},"request_inputs":{{}},"response_timestamps":[{answered}]}}'
        for sent, answered in zip(sent_ns, answered_ns, strict=True)
    )
    end = f'"window_boundaries":[{START_NS},{answered_ns.max()}]'
    text = f'{{"experiments":[{{"requests":[{requests}],{end}}}],"version":"2.51.0"}}'  # 1: digits
    (tmp_path / "export.json").write_text(text)

    stamps = outputs.read_export(tmp_path / "export.json")  # 2: nanoseconds, sent and answered
    observed = observe_open(stamps, DUE_S, WINDOW)  # 3: latencies from due to answered, ascending
    measurement = measurement_of(observed, LOAD, seed=1)  # 4: the percentile
    point = judge_point([P99_40MS], measurement)
    assert point.measurement is measurement  # carried, not turned into anything
    trial = Trial(0, candidate_of({}), TrialState.MEASURED, (point,))
    RunStore(tmp_path).append_trial(trial)  # 5: a number in a line

    (stored,) = json.loads((tmp_path / TRIALS).read_text())["points"]
    assert stored["measurement"]["p99_latency_us"] == pytest.approx(99_000.0, abs=0.5)
    assert stored["slo"][0]["value"] == stored["measurement"]["p99_latency_us"]
