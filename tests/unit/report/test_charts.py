"""What single charts show, beyond being drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from candidates import candidate_of
from unit.report.conftest import Made

from tuner.report.analysis import unsimplified
from tuner.report.charts.front import EDGE, front
from tuner.report.charts.latency import curves
from tuner.report.charts.prediction import predicted
from tuner.report.charts.search import history
from tuner.report.data import ReportData
from tuner.report.sentence import config_text
from tuner.report.side import judged_point
from tuner.score.trial import Predicted, Trial, TrialState


def trace(chart: Any, name: str) -> dict[str, Any]:
    return next(t for t in chart.figure["data"] if t["name"] == name)


def simplified(data: ReportData) -> tuple[ReportData, Trial]:
    """The run as if one field of its best trial had been put back afterwards."""
    assert data.best is not None
    origin = next(t for t in data.trials if t.number == data.best.trial)
    fields = {**origin.candidate.of(""), "max_batch_size": 3}
    winner = replace(data.best, candidate=candidate_of(fields), trial=None, points=())
    return replace(data, best=winner), origin


class TestFront:
    def test_every_trial_with_a_measurement_has_a_point_with_its_whole_config(
        self, made: Made
    ) -> None:
        data = made()
        chart = front(data)
        assert chart is not None
        found = {
            number: text
            for name in ("meets the SLOs", "misses an SLO", "out of the race (bound)")
            for number, text in zip(
                trace(chart, name)["customdata"], trace(chart, name)["text"], strict=True
            )
        }
        measured = [t for t in data.trials if t.points]
        assert sorted(found) == [t.number for t in measured]
        for trial in measured:
            assert all(phrase in found[trial.number] for phrase in config_text(trial.candidate))

    def test_current_and_best_are_ringed_where_their_trials_are(self, made: Made) -> None:
        data = made()
        chart = front(data)
        assert chart is not None
        assert data.best is not None
        for name, number in (("current config", 0), ("best config", data.best.trial)):
            assert trace(chart, name)["customdata"] == [number]
            point = judged_point(data.trials[number or 0])
            assert point is not None
            assert trace(chart, name)["x"] == [point.measurement.throughput_infer_per_s]

    def test_a_best_config_that_was_no_trial_is_ringed_where_it_was_confirmed(
        self, made: Made
    ) -> None:
        data, _ = simplified(made())
        chart = front(data)
        assert chart is not None
        assert data.best is not None
        assert data.best.judged is not None
        ring = trace(chart, "best config, as confirmed")
        assert ring["x"] == [data.best.judged.measurement.throughput_infer_per_s]
        assert "customdata" not in ring

    def test_a_current_config_that_only_lost_the_race_is_ringed_where_it_was_confirmed(
        self, made: Made
    ) -> None:
        data = made()
        raced = replace(data.trials[0], state=TrialState.PRUNED)
        chart = front(replace(data, trials=(raced, *data.trials[1:])))
        assert chart is not None
        assert data.current is not None
        assert data.current.judged is not None
        ring = trace(chart, "current config, as confirmed")
        assert ring["x"] == [data.current.judged.measurement.throughput_infer_per_s]

    def test_trials_given_up_far_beyond_the_others_are_at_the_edge(self, made: Made) -> None:
        data = made()
        lost = next(t for t in data.trials if t.state.value == "pruned")
        late = replace(lost.points[-1].measurement, p99_latency_us=9e6)
        points = (replace(lost.points[-1], measurement=late),)
        assert lost.score is not None
        there = replace(lost, points=points, score=replace(lost.score, best_point=None))
        trials = tuple(there if t is lost else t for t in data.trials)
        chart = front(replace(data, trials=trials))
        assert chart is not None
        crosses = trace(chart, "out of the race (bound)")
        y = crosses["y"][crosses["customdata"].index(lost.number)]
        others = [*trace(chart, "meets the SLOs")["y"], 40.0]
        assert y == pytest.approx(max(others) * EDGE)
        assert "beyond it" in chart.note
        assert "9 s" in crosses["text"][crosses["customdata"].index(lost.number)]


def test_a_simplified_winner_is_shown_with_the_trial_it_comes_from(made: Made) -> None:
    data, origin = simplified(made())
    assert unsimplified(data) == origin
    (chart,) = curves(data)
    name = f"before it was simplified (trial {origin.number})"
    assert len(trace(chart, name)["x"]) == len(origin.points)


def test_a_winner_that_was_a_trial_comes_from_no_other(made: Made) -> None:
    assert unsimplified(made()) is None


def test_the_history_has_failures_on_its_axis_and_the_best_to_the_end(made: Made) -> None:
    data = made()
    chart = history(data)
    assert chart is not None
    failed = trace(chart, "failed")
    assert failed["customdata"] == [t.number for t in data.failed]
    assert set(failed["y"]) == {0.0}
    assert "failed to allocate &lt;pinned&gt; memory" in failed["text"][0].replace("<br>", " ")
    assert trace(chart, "best so far")["x"][-1] == data.trials[-1].number


def test_the_history_says_which_trial_was_the_current_config(made: Made) -> None:
    data = made()
    assert data.current is not None
    for number in (0, 3):
        chart = history(replace(data, current=replace(data.current, trial=number)))
        assert chart is not None
        assert chart.note.startswith(
            f"Trial {number} is the current config. A trial out of the race"
        )
    chart = history(replace(data, current=None))
    assert chart is not None
    assert chart.note.startswith("A trial out of the race")


class TestPredicted:
    def test_without_predictions_there_is_no_chart(self, made: Made) -> None:
        assert predicted(made()) is None

    def test_each_measured_prediction_is_a_point_with_its_interval(self, made: Made) -> None:
        data = made(twin=True)
        chart = predicted(data)
        assert chart is not None
        shown = [t for t in data.scored if t.predicted and t.score and t.score.feasible]
        points = trace(chart, "trials, with 90 % intervals")
        assert points["customdata"] == [t.number for t in shown]
        first = shown[0]
        assert first.predicted is not None
        assert points["y"][0] == first.predicted.value
        assert points["error_y"]["array"][0] == pytest.approx(first.predicted.value * 0.1)

    def test_the_note_says_how_good_they_were(self, made: Made) -> None:
        data = made(trials=4)
        good = Predicted(data.trials[1].score.value * 1.05, 0.0, 1e9)  # type: ignore[union-attr]
        wrong = Predicted(data.trials[2].score.value * 2.0, 1e9, 2e9)  # type: ignore[union-attr]
        trials = (
            data.trials[0],
            replace(data.trials[1], predicted=good),
            replace(data.trials[2], predicted=wrong),
        )
        chart = predicted(replace(data, trials=trials))
        assert chart is not None
        assert "Of 2 predictions, 1 held within the 90 % interval" in chart.note
        assert "the median is off by 52.5 %" in chart.note
        assert [row[-1] for row in chart.table.rows] == ["+5.0 %", "+100.0 %"]
