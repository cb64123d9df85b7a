"""Short loads around the one a config is credited with: what they tell, and what they never do."""

from __future__ import annotations

from typing import Any

import pytest
from builders.emulated import a_session
from builders.proving import CURRENT, OTHER, spec_of, trial
from builders.soaking import Lasting, told

from tuner.confirm.rounds import Row
from tuner.confirm.stored import ResumedBench
from tuner.errors import ClientLimitError, LoadFailedError, TrialError
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window
from tuner.programs.run.outcome import Verdict
from tuner.programs.run.prove import prove
from tuner.run.confirmation import LoadCurve, Role, Soak
from tuner.score.point import Point
from tuner.steps.rig import curve_window


class Curved(Lasting):
    """``trouble_at``: the share of the last soak at which a short load gives no result."""

    def __init__(self, trouble_at: float = 9.0, **changes: Any) -> None:
        super().__init__(spec_of(**changes), {CURRENT: 100.0, OTHER: 1000.0}, {})
        self.trouble_at, self.failing = trouble_at, LoadFailedError("no export.")

    def once(self, level: float, seed: int, window: Window) -> Point:
        if self.soaks and level > self.trouble_at * self.soaks[-1].level:
            raise self.failing
        return super().once(level, seed, window)


def curve_of(verdict: Verdict) -> LoadCurve | None:
    assert verdict.winner is not None
    assert verdict.winner.soak is not None
    return verdict.winner.soak.curve


def test_five_loads_around_the_credited_one_go_to_the_server_that_was_soaked() -> None:
    bench = Curved()
    verdict, watching, rows = told(bench)
    curve = curve_of(verdict)
    assert curve is not None
    credited = 0.97 * bench.soaks[-1].level
    assert [p.level for p in curve.points] == pytest.approx(
        [share * credited for share in (0.7, 0.8, 0.9, 1.0, 1.05)]
    )
    assert {a.server for a in bench.short} == {bench.soaks[-1].server}
    assert len({a.seed for a in bench.short}) == 1
    assert bench.short[0].seed not in {*bench.seeds, bench.soaks[-1].seed}
    easy = [p for p in curve.points if p.measurement.p99_latency_us <= 0.8 * 40e3]
    assert easy
    said = f"at {easy[-1].level:.4g}/s its p99_latency is still within 80% of the SLO"
    assert [n for n in watching.notes if n.startswith("load curve")] == [f"load curve: {said}"]
    assert [r.point.level for r in rows if r.role is Role.CURVE] == [a.level for a in bench.short]
    soak = verdict.winner.soak if verdict.winner else None
    assert soak is not None
    kept = Soak.from_json(soak.to_json()).curve
    assert kept is not None
    assert kept.sentence == said


@pytest.mark.parametrize("trouble", [LoadFailedError("no export."), ClientLimitError("no export.")])
def test_a_load_without_a_result_is_left_out_with_its_reason(trouble: TrialError) -> None:
    bench = Curved(trouble_at=0.95)
    bench.failing = trouble
    verdict, _, _ = told(bench)
    curve = curve_of(verdict)
    assert curve is not None
    assert len(curve.points) == 3
    assert curve.left_out == (f"{0.97 * bench.soaks[-1].level:.4g}/s and above (no export)",)
    assert curve.sentence.endswith("; left out: " + curve.left_out[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"workload": {"arrivals": {"kind": "poisson", "rate": [90, 900]}}},
        {"confirm": {"soak": 0}},
    ],
)
def test_where_no_capacity_was_searched_or_nothing_was_soaked_there_is_none(
    changes: dict[str, Any],
) -> None:
    bench = Curved(**changes)
    verdict, watching, _ = told(bench)
    assert bench.short == []
    assert verdict.winner is not None
    soak = verdict.winner.soak
    assert soak is None or "curve" not in soak.to_json()
    assert not any("curve" in note for note in watching.notes)


@pytest.mark.parametrize(
    ("slo", "rate", "fits"), [("40ms", 97, True), ("40ms", 95, False), ("2s", 97, False)]
)
def test_five_seconds_are_never_exceeded(slo: str, rate: float, fits: bool) -> None:
    """Whatever the spec's own window: where a verdict needs longer, the load is left out."""
    spec = spec_of(slo=[f"p99_latency <= {slo}"], workload={"window": "30s", "warmup": "20s"})
    window = curve_window(spec, LoadPoint(Arrivals.POISSON, rate))
    assert (window.duration_s <= 5.0) is fits
    if fits:
        assert window.total_s < 7.0
        assert not window.ends_early  # above the claim an SLO is missed, and by how much is asked


def test_all_loads_of_a_slow_model_are_left_out_in_one_sentence() -> None:
    bench = Curved(slo=["p99_latency <= 2s"])
    curve = curve_of(told(bench)[0])
    assert curve is not None
    assert (bench.short, curve.points) == ([], ())
    assert curve.sentence.startswith("left out: ")
    assert curve.sentence.endswith("(5 s are too short for a verdict)")


def test_a_resumed_run_measures_only_the_loads_that_are_missing() -> None:
    rows: list[Row] = told(Curved())[2]
    kept = [r.kept for r in rows][:-2]
    assert [r.role for r in kept[-4:]] == [Role.SOAK, Role.CURVE, Role.CURVE, Role.CURVE]
    again, new = Curved(), list[Row]()
    resumed = ResumedBench(again, kept, new.append, lambda _: None)
    session = a_session(resumed, again.spec, CURRENT, record=resumed.record)
    searched = trial(again, 0, CURRENT, 98, 110), trial(again, 1, OTHER, 980, 1100)
    whole = prove(session, searched)
    assert (len(again.asked), again.soaks, len(again.short)) == (0, [], 2)
    curve = curve_of(whole)
    assert curve is not None
    assert len(curve.points) == 5
    assert [r.role for r in new] == [Role.CURVE, Role.CURVE]
