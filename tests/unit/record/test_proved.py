"""What a config is credited with follows from its measurements, in one place."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.measurements import P99_40MS, synthetic_measurement
from builders.runs import CURRENT, Toy, make_trials

from tuner.measurement.measurement import Arrivals
from tuner.reason import Reason
from tuner.record.confirmation import Soak, Soaked
from tuner.record.proved import ProvedConfig, best_other
from tuner.score.point import Point, judge_point, score_points
from tuner.score.saturation import Saturated
from tuner.score.trial import Trial, TrialState
from tuner.spec.slo import Goal, Objective

LATE, IN_TIME = 90e3, 20e3


def at(level: float, p99_us: float = IN_TIME, answered: float = 1.0) -> Point:
    made = synthetic_measurement(level, p99_us)
    served = replace(made, throughput_infer_per_s=answered * made.throughput_infer_per_s)
    return judge_point([P99_40MS], served)


def soak_at(*levels: float, headroom: float = 0.0) -> Soak:
    """The last load held."""
    points = [*(at(level, LATE) for level in levels[:-1]), at(levels[-1])]
    tried = tuple(Soaked(p.measurement, p.slo) for p in points)
    return Soak(tried, headroom=headroom)


@pytest.mark.parametrize(
    ("rounds", "soak", "credited"),
    [
        ([at(300.0), at(280.0), at(290.0)], None, 280.0),
        ([at(300.0), at(280.0, LATE)], None, 300.0),
        ([at(300.0, LATE)], None, None),
        ([at(300.0), at(280.0)], soak_at(270.0, headroom=0.1), 243.0),
        ([at(300.0), at(280.0)], soak_at(300.0, 200.0), 200.0),
        ([at(300.0), at(280.0)], Soak(why_unknown=Reason.of_text("the server died")), 280.0),
    ],
)
def test_a_config_is_credited_with_its_soak_or_else_its_worst_round(
    rounds: list[Point], soak: Soak | None, credited: float | None
) -> None:
    proved = ProvedConfig.of(CURRENT, rounds, soak=soak)
    assert proved.credited_infer_per_s == (None if credited is None else pytest.approx(credited))


def test_sustained_soak_represents_a_config_or_else_the_worst_round_that_met_the_slos() -> None:
    rounds = [at(300.0), at(280.0), at(270.0, LATE)]
    assert ProvedConfig.of(CURRENT, rounds).judged is rounds[1]
    assert ProvedConfig.of(CURRENT, rounds[2:]).judged is rounds[2]
    assert ProvedConfig.of(CURRENT, rounds, soak=soak_at(300.0, 200.0)).judged.level == 200.0


def test_latencies_and_slos_are_the_worst_of_rounds_and_soak() -> None:
    proved = ProvedConfig.of(CURRENT, [at(300.0, 30e3), at(280.0, 35e3)], soak=soak_at(200.0))
    assert proved.p99_latency_us == 35e3
    assert [s.value for s in proved.slo] == [35e3]


def test_a_saturated_config_of_the_search_is_known_to_sustain_at_most_what_it_answered() -> None:
    overloaded = trial(at(107.0, LATE, answered=0.33))
    proved = ProvedConfig.of_trial(replace(overloaded, saturated=Saturated(16, 35.0, 35.3)))
    assert proved is not None
    assert (proved.credited_infer_per_s, proved.from_search) == (None, True)
    assert proved.at_most_infer_per_s == pytest.approx(35.3, rel=0.01)
    late = ProvedConfig.of_trial(trial(at(107.0, LATE)))
    assert late is not None
    assert late.at_most_infer_per_s == 107.0  # late, but it answered all
    met = ProvedConfig.of_trial(trial(at(30.0), at(107.0, LATE, answered=0.33)))
    assert met is not None
    assert (met.credited_infer_per_s, met.at_most_infer_per_s) == (30.0, None)


def test_the_best_other_config_is_not_the_current_one() -> None:
    trials = make_trials(Toy(trials=6))
    proved = best_other(trials, CURRENT, Goal.MAXIMIZE_GOODPUT)
    assert proved is not None
    assert proved.candidate != CURRENT
    assert best_other(trials[:1], CURRENT, Goal.MAXIMIZE_GOODPUT) is None


def test_a_record_comes_back_from_its_json_as_it_was() -> None:
    proved = ProvedConfig.of(CURRENT, [at(300.0)], soak=soak_at(270.0), at_least=True)
    assert ProvedConfig.from_json(proved.to_json()).to_json() == proved.to_json()


def trial(*points: Point) -> Trial:
    score = score_points(Objective.goodput(), points)
    return Trial(0, CURRENT, TrialState.MEASURED, points, score)


def test_a_recording_is_credited_with_its_load_and_not_with_the_burst_in_each_window() -> None:
    window = synthetic_measurement(100.0, served=180.0, arrivals=Arrivals.RECORDING)
    point = judge_point([P99_40MS], window)
    soak = Soak((Soaked(window, point.slo),), headroom=0.03)
    assert ProvedConfig.of(CURRENT, [point]).credited_infer_per_s == pytest.approx(100.0)
    assert ProvedConfig.of(CURRENT, [point], soak=soak).credited_infer_per_s == pytest.approx(97.0)
    assert score_points(Objective.goodput(), [point]).value == pytest.approx(100.0)
