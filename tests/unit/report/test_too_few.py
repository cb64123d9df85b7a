"""Too few answers for a verdict are told, drawn and counted as that, and never as a missed SLO."""

from __future__ import annotations

import pytest
from builders.candidates import candidate_of
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement

from tuner.cli.ui.words import outcome_text, point_text
from tuner.meter.evaluate import evaluate_listed
from tuner.record.proved import ProvedConfig
from tuner.report.charts import TrialMarker
from tuner.report.charts.load import _symbol
from tuner.report.quantities import verdict_text
from tuner.score.judge import SloOutcome, outcome_of_rounds, too_few_text
from tuner.score.point import Point, judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.spec.slo import Objective

GOODPUT = Objective.goodput()
MET, MISSED, TOO_FEW = SloOutcome


def at(level: float, p99_us: float = 20e3, count: int = 1000) -> Point:
    measured = synthetic_measurement(level, p99_us, count=count)
    return judge_point((P99_40MS, NO_ERRORS), measured)


def trial_of(*points: Point) -> Trial:
    score = score_points(GOODPUT, points)
    return Trial(1, candidate_of({}), TrialState.MEASURED, points, score)


FEW = at(100.0, count=290)


def test_too_few_answers_are_reported_with_their_number() -> None:
    assert point_text(FEW) == ("100/s too few answers (290 of 299), p99 latency 20 ms (<= 40 ms)")
    short, detail = outcome_text(trial_of(FEW))
    assert detail.startswith("too few answers (290 of 299) for a verdict at 100/s")
    assert short == "too few answers (290 of 299)"
    assert verdict_text(FEW.slo[0]) == "too few answers (290 of 299)"
    assert "miss" not in detail


def test_unmeasured_metric_is_reported_as_unmeasured() -> None:
    from tuner.spec.slo import Slo

    point = judge_point((Slo.parse("gpu_memory <= 1GiB"),), synthetic_measurement(100.0))
    assert too_few_text(point.slo) == "gpu_memory not measured"


def test_each_outcome_has_a_distinct_mark() -> None:
    marks = [_symbol("circle", outcome) for outcome in SloOutcome]
    assert len({*marks}) == len(marks)
    assert not _symbol("circle", TOO_FEW).startswith("circle")
    assert TrialMarker.of(trial_of(FEW)) is TrialMarker.TOO_FEW


@pytest.mark.parametrize(
    ("points", "outcome"),
    [
        ((FEW,), TOO_FEW),
        ((FEW, at(200.0, 90e3)), TOO_FEW),  # at its lowest load
        ((at(50.0, 90e3), FEW), MISSED),
        ((FEW, at(200.0)), MET),
    ],
)
def test_a_trial_holds_a_load_or_misses_or_that_is_not_known(
    points: tuple[Point, ...], outcome: SloOutcome
) -> None:
    trial = trial_of(*points)
    assert trial.outcome is outcome
    proved = ProvedConfig.of_trial(trial)
    assert proved is not None
    assert proved.outcome is outcome


@pytest.mark.parametrize(
    ("rounds", "outcome"),
    [
        ((MET, MET, TOO_FEW), MET),
        ((MET, MISSED, MISSED), MISSED),
        ((MET, MISSED, TOO_FEW), TOO_FEW),
        ((TOO_FEW, TOO_FEW, MISSED), TOO_FEW),
        ((), TOO_FEW),
    ],
)
def test_rounds_say_what_half_of_them_say(
    rounds: tuple[SloOutcome, ...], outcome: SloOutcome
) -> None:
    assert outcome_of_rounds(rounds) is outcome


def test_a_higher_listed_load_is_measured_where_a_lower_one_has_too_few_answers() -> None:
    few_below = {50.0: FEW, 100.0: at(100.0), 200.0: at(200.0, 90e3), 400.0: at(400.0)}
    evaluation = evaluate_listed(few_below.__getitem__, GOODPUT, [*few_below])
    assert len(evaluation.points) == 3  # a load above one that missed is not measured
    assert evaluation.score.feasible
