"""A bound on how busy a GPU is."""

from __future__ import annotations

from dataclasses import replace

from builders.measurements import synthetic_server

from tuner.score.judge import Verdict
from tuner.score.point import judge_point
from tuner.spec.slo import Slo

BUSY = Slo.parse("gpu_utilization <= 85%")


def verdict(share: float | None) -> Verdict:
    measured = synthetic_server(900, 1000)
    host = replace(measured.host, gpu_utilization=share)
    return judge_point([BUSY], replace(measured, host=host)).slo[0].verdict


def test_load_that_keeps_a_gpu_busier_than_the_bound_misses_it() -> None:
    assert verdict(0.8) is Verdict.PASS
    assert verdict(0.9) is Verdict.FAIL


def test_gpu_that_is_not_measured_never_passes() -> None:
    assert verdict(None) is not Verdict.PASS
