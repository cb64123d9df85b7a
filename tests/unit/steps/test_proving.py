"""From trials to a verdict: which config, by which numbers, and for what reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from synthetic import synthetic_measurement, synthetic_server

from tuner.bench.evaluate import load_plan
from tuner.errors import DeployRefusedError
from tuner.load.answers import Answer, Answers
from tuner.load.measurement import Arrivals, Measurement
from tuner.report.result_schema import Status
from tuner.run.trial import Trial, TrialState
from tuner.score.point import Point, judge_point, score_points
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec
from tuner.steps.events import Events, Silent
from tuner.steps.outcome import Verdict, result_json
from tuner.steps.proving import Proof, proved

COUNT = "instance_group.count"
CURRENT, OTHER = Candidate({COUNT: 1}), Candidate({COUNT: 2})
AT_300 = "minimize p99_latency at 300/s"


class EmulatedBench:
    """Serves each candidate up to its capacity; one without is refused by the server."""

    def __init__(self, spec: Spec, capacity: Mapping[Candidate, float]) -> None:
        self.spec = spec
        self.capacity = capacity
        self.candidate = CURRENT
        self.levels: list[tuple[Candidate, float]] = []
        self.answer: Mapping[Candidate, float] = {}

    def deploy(self, candidate: Candidate, *, fresh: bool = False) -> object:
        assert fresh
        if candidate not in self.capacity:
            raise DeployRefusedError("out of memory")
        self.candidate = candidate
        return None

    def measured(self, level: float) -> Measurement:
        capacity = self.capacity[self.candidate]
        if self.spec.workload.arrivals.kind == "closed":
            p99_us = 40e3 * level / capacity
            return synthetic_measurement(
                level, p99_us, served=10.0 * level, arrivals=Arrivals.CLOSED
            )
        if self.spec.objective.metric is not None:
            return synthetic_measurement(level, 1e6 / capacity)
        return synthetic_server(level, capacity)

    def measure(self, level: float, seed: int) -> Point:
        self.levels.append((self.candidate, level))
        return judge_point(self.spec.slo, self.measured(level))

    def answers(self) -> Answers:
        return Answers(alone=(Answer({"y": np.array([self.answer.get(self.candidate, 1.0)])}),))


def spec_of(**changes: Any) -> Spec:
    spec = {"model": "m", "repository": "r", "slo": ["p99_latency <= 40ms"]}
    return Spec.model_validate({**spec, "space": {COUNT: {"int": [1, 6]}}, **changes})


def lost_at(bench: EmulatedBench, number: int, candidate: Candidate, *levels: float) -> Trial:
    """A trial that lost the race at the first of ``levels``."""
    measured = trial(bench, number, candidate, *levels)
    score = score_points(bench.spec.objective, measured.points[:1])
    return replace(measured, state=TrialState.PRUNED, score=score)


def trial(bench: EmulatedBench, number: int, candidate: Candidate, *levels: float) -> Trial:
    if candidate not in bench.capacity:
        return Trial(number, candidate, TrialState.FAILED, reason="out of memory")
    bench.candidate = candidate
    points = tuple(judge_point(bench.spec.slo, bench.measured(level)) for level in levels)
    score = score_points(bench.spec.objective, points)
    return Trial(number, candidate, TrialState.MEASURED, points, score)


class Rounds(Silent):
    def __init__(self) -> None:
        self.told: list[str] = []

    def round_over(self, what: str, stood: Point) -> None:
        self.told.append(f"{what}: {stood.measurement.load.level:.0f}")


def prove(bench: EmulatedBench, *trials: Trial, events: Events | None = None) -> Verdict:
    plan = load_plan(bench.spec.workload, bench.spec.objective)
    ignored: list[object] = []
    watcher = events or Silent()
    proof = Proof(bench.spec, plan, bench, ignored.append, watcher, CURRENT, lambda _: True)  # type: ignore[arg-type]
    return proved(proof, trials)


def result_of(bench: EmulatedBench, verdict: Verdict) -> dict[str, Any]:
    return result_json(
        run_id="r",
        model="m",
        spec_sha256="0" * 64,
        objective=str(bench.spec.objective),
        verdict=verdict,
        trials=(),
        rejected=(),
        duplicates=0,
        time={"wall_s": 1.0, "measuring_s": 1.0},
        change=None,
        written=None,
    )


def test_the_winner_is_credited_with_what_it_stood_and_capacities_are_compared() -> None:
    bench = EmulatedBench(spec_of(), {CURRENT: 100.0, OTHER: 1000.0})
    verdict = prove(bench, trial(bench, 0, CURRENT, 98, 110), trial(bench, 1, OTHER, 980, 1100))
    assert verdict.status is Status.IMPROVED
    result = result_of(bench, verdict)
    assert result["improvement"]["compared"] == "capacity"
    gain = result["improvement"]["goodput_ratio"]["estimate"]
    assert gain == pytest.approx(10, rel=0.02)
    means = result["improvement"]["means"]
    assert means["winner"] / means["current"] == pytest.approx(gain)
    stood = [p.measurement.load.level for p in verdict.confirmation.points]  # type: ignore[union-attr]
    assert result["winner"]["goodput_infer_per_s"] == min(stood)
    assert result["objective"] == "maximize goodput"


@pytest.mark.parametrize("levels", [(1000,), (1000, 98)])
def test_a_current_config_that_only_lost_the_race_is_measured_where_it_should_stand(
    levels: tuple[float, ...],
) -> None:
    bench = EmulatedBench(spec_of(), {CURRENT: 100.0, OTHER: 1000.0})
    lost = lost_at(bench, 1, CURRENT, *levels)
    verdict = prove(bench, trial(bench, 0, OTHER, 980, 1100), lost)
    assert verdict.status is Status.IMPROVED
    result = result_of(bench, verdict)
    assert result["improvement"]["goodput_ratio"]["estimate"] == pytest.approx(10, rel=0.02)
    assert 90 < result["baseline"]["goodput_infer_per_s"] <= 100
    assert max(level for candidate, level in bench.levels if candidate == CURRENT) < 130


def test_a_closed_loop_that_only_lost_the_race_is_measured_where_it_should_stand() -> None:
    spec = spec_of(workload={"arrivals": {"kind": "closed"}})
    bench = EmulatedBench(spec, {CURRENT: 4.0, OTHER: 100.0})
    lost = lost_at(bench, 1, CURRENT, 102)
    verdict = prove(bench, trial(bench, 0, OTHER, 100, 104), lost)
    assert verdict.status is Status.IMPROVED
    result = result_of(bench, verdict)
    assert result["baseline"]["goodput_infer_per_s"] == 40.0
    assert result["improvement"]["goodput_ratio"]["estimate"] == pytest.approx(25, rel=0.05)


def test_a_current_config_that_lost_and_meets_the_slos_nowhere_has_no_gain_over_it() -> None:
    bench = EmulatedBench(spec_of(), {CURRENT: 0.05, OTHER: 1000.0})
    lost = lost_at(bench, 1, CURRENT, 1000)
    verdict = prove(bench, trial(bench, 0, OTHER, 980, 1100), lost)
    assert verdict.status is Status.IMPROVED
    result = result_of(bench, verdict)
    assert result["improvement"] is None
    assert result["baseline"]["goodput_infer_per_s"] is None


@pytest.mark.parametrize(
    ("changes", "compared"),
    [
        ({"workload": {"arrivals": {"kind": "poisson", "rate": [90, 900]}}}, "throughput"),
        ({"objective": AT_300}, "p99_latency"),
    ],
)
def test_what_was_compared_is_named(changes: dict[str, Any], compared: str) -> None:
    bench = EmulatedBench(spec_of(**changes), {CURRENT: 100.0, OTHER: 1000.0})
    levels = (300.0,) if "objective" in changes else (90.0, 900.0)
    verdict = prove(bench, trial(bench, 0, CURRENT, *levels), trial(bench, 1, OTHER, *levels))
    assert verdict.status is Status.IMPROVED
    assert result_of(bench, verdict)["improvement"]["compared"] == compared


def test_a_current_config_that_cannot_be_served_does_not_stand_in_the_way() -> None:
    bench = EmulatedBench(spec_of(objective=AT_300), {OTHER: 1000.0})
    bench.capacity = {OTHER: 1000.0}
    verdict = prove(bench, trial(bench, 0, CURRENT, 300), trial(bench, 1, OTHER, 300))
    assert verdict.confirmation is None or verdict.confirmation.ratio is None
    assert not any("could not be measured again" in reason for reason in verdict.reasons)


def test_a_simpler_closed_loop_is_measured_with_about_the_clients_that_were_stood() -> None:
    spec = spec_of(workload={"arrivals": {"kind": "closed"}})
    found = Candidate({COUNT: 2, "max_batch_size": 8})
    simpler = Candidate({COUNT: 2, "max_batch_size": None})
    bench = EmulatedBench(spec, {CURRENT: 4.0, found: 17.0, simpler: 17.0})
    verdict = prove(bench, trial(bench, 0, CURRENT, 4, 5), trial(bench, 1, found, 17, 18))
    assert verdict.status is Status.IMPROVED
    assert verdict.winner is not None
    assert verdict.winner.candidate == simpler
    assert {level for c, level in bench.levels if c == simpler} == {16.0, 17.0, 18.0}


def test_each_round_of_a_config_and_of_a_change_undone_is_told_once() -> None:
    found = Candidate({COUNT: 2, "max_batch_size": 8})
    simpler = Candidate({COUNT: 2, "max_batch_size": None})
    capacity = {CURRENT: 100.0, found: 1000.0, simpler: 1000.0, Candidate({COUNT: 1}): 100.0}
    bench, rounds = EmulatedBench(spec_of(), capacity), Rounds()
    first, second = trial(bench, 0, CURRENT, 98, 110), trial(bench, 1, found, 980, 1100)
    verdict = prove(bench, first, second, events=rounds)
    assert verdict.winner is not None
    assert verdict.winner.candidate == simpler
    rows = [line.rsplit(": ", 1) for line in rounds.told]
    assert [what for what, _ in rows[:3]] == [
        "round 1, current config",
        "round 1, instances 2, max batch 8",
        "round 2, instances 2, max batch 8",
    ]
    assert rows[1][1] == rows[2][1]
    undone = [what for what, _ in rows if "the winner with" in what]
    assert undone == [f"round {n}, the winner with no max batch" for n in (1, 2, 3)]
    assert len(set(rounds.told)) == len(rounds.told)


def test_a_kept_config_has_the_numbers_of_being_measured_again() -> None:
    bench = EmulatedBench(spec_of(), {CURRENT: 1000.0, OTHER: 1000.0})
    lucky = trial(bench, 1, OTHER, 980)
    bench.capacity = {CURRENT: 940.0, OTHER: 1000.0}
    unlucky = trial(bench, 0, CURRENT, 930)
    bench.capacity = {CURRENT: 1000.0, OTHER: 1000.0}
    verdict = prove(bench, unlucky, lucky)
    assert verdict.status is Status.KEPT
    assert verdict.baseline is not None
    assert len(verdict.baseline.points) == 3
    assert {c for c, _ in bench.levels} == {CURRENT, OTHER}
    assert result_of(bench, verdict)["baseline"]["goodput_infer_per_s"] >= 930


def test_answers_that_change_refuse_the_winner() -> None:
    bench = EmulatedBench(spec_of(), {CURRENT: 100.0, OTHER: 1000.0})
    bench.answer = {OTHER: 2.0}
    verdict = prove(bench, trial(bench, 0, CURRENT, 98, 110), trial(bench, 1, OTHER, 980, 1100))
    assert verdict.status is Status.UNCONFIRMED
    assert "It changes answers" in verdict.reasons[-1]


def test_a_round_that_the_current_config_did_not_stand_gives_it_no_goodput() -> None:
    bench = EmulatedBench(spec_of(), {CURRENT: 100.0, OTHER: 1000.0})
    rounds = iter([100.0, 1.0, 100.0])

    def deploy(candidate: Candidate, *, fresh: bool = False) -> object:
        if candidate == CURRENT:
            bench.capacity = {CURRENT: next(rounds, 100.0), OTHER: 1000.0}
        bench.candidate = candidate
        return None

    bench.deploy = deploy  # type: ignore[method-assign]
    verdict = prove(bench, trial(bench, 0, CURRENT, 98, 110), trial(bench, 1, OTHER, 980, 1100))
    baseline = result_of(bench, verdict)["baseline"]
    assert 90 < baseline["goodput_infer_per_s"] <= 100
    assert {s["verdict"] for s in baseline["slo"]} == {"not enough data"} or baseline["slo"]
