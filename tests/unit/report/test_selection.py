"""The searched score beside the confirmed one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.report.conftest import Made, told
from unit.report.synthetic import measure

from tuner.report.data import ReportData
from tuner.report.quantities import rate_text
from tuner.report.selection import measured_again, selection_note
from tuner.run.confirmation import PutBack, Repeat, Role
from tuner.score.point import judge_point
from tuner.score.trial import Trial, TrialState
from tuner.spec.slo import Slo

MET, MISSED = Slo.parse("p99_latency <= 10s"), Slo.parse("p99_latency <= 1us")


def rate(trial: Trial, factor: float) -> float:
    assert trial.score is not None
    return trial.score.value * factor


def repeat(trial: Trial, round_: int, factor: float, *, role: str, met: bool = True) -> Repeat:
    """A measurement that answered ``factor`` times what the search found."""
    measurement = measure(trial.candidate, rate(trial, factor), 0)
    served = replace(measurement, throughput_infer_per_s=rate(trial, factor), completed_count=1000)
    point = judge_point([MET if met else MISSED], served)
    return Repeat(round_, 0, Role(role), trial.candidate.key, point)


@pytest.fixture
def data(made: Made) -> ReportData:
    return made("improved")


def finalists(data: ReportData) -> list[Trial]:
    return [t for t in data.scored if t.score and t.score.feasible and t.number][:2]


@pytest.mark.parametrize("kept", [True, False])
def test_a_winner_made_simpler_is_told(data: ReportData, kept: bool) -> None:
    row = PutBack("max_batch_size", 900.0, 899.0, -1.0, kept=kept)
    note = selection_note(told(data, simplification=(row,)))
    assert ("was then simplified" in note) is not kept


def test_where_loads_are_listed_each_round_has_its_score(data: ReportData) -> None:
    (one, other), current = finalists(data), data.trials[0]
    repeats = (
        repeat(one, 0, 0.95, role="candidate"),
        repeat(one, 1, 0.85, role="candidate"),
        repeat(other, 0, 1.0, role="candidate", met=False),
        repeat(current, 0, 1.0, role="current"),
        repeat(current, 1, 1.1, role="current"),
        repeat(other, 1, 0.5, role="simpler"),
    )
    table = measured_again(replace(data, repeats=repeats))
    assert table is not None
    assert table.headers[1:3] == ("score in the search", "score in each round")
    (now, first, second) = table.rows
    assert (now[0], now[-1]) == ("current config", "+4.9%")
    again = ", ".join(rate_text(rate(one, factor)) for factor in (0.95, 0.85))
    mean = rate_text(rate(one, (0.95 * 0.85) ** 0.5))
    assert first[1:] == (rate_text(rate(one, 1.0)), again, mean, "-10.1%")
    assert second[2:] == ("no load met the SLOs", "-", "-")


def test_where_loads_are_searched_capacities_are_compared(data: ReportData) -> None:
    (one, _), current = finalists(data), data.trials[0]
    repeats = (
        repeat(one, 0, 0.90, role="candidate"),
        repeat(one, 0, 0.98, role="candidate", met=False),
        repeat(one, 1, 0.86, role="candidate", met=False),
        repeat(one, 1, 0.94, role="candidate"),
        repeat(current, 0, 1.0, role="current"),
    )
    table = measured_again(replace(data, repeats=repeats))
    assert table is not None
    assert table.headers[1:3] == ("capacity in the search", "capacity in each round")
    first, second = table.rows[1][2].split("/s, ")
    low, high = rate(one, 0.90), rate(one, 0.98)
    assert low < float(first.replace(",", "")) < high
    # What passed above a failure overtakes it; the load counts, not what was answered of it.
    assert second == rate_text(repeats[3].point.measurement.load.level)


def test_a_current_config_that_only_lost_the_race_is_not_said_to_meet_no_slo(
    data: ReportData,
) -> None:
    (one, _), current = finalists(data), data.trials[0]
    assert current.score is not None
    lost = replace(
        current,
        state=TrialState.PRUNED,
        score=replace(current.score, feasible=False, best_point=None),
    )
    repeats = (repeat(one, 0, 0.9, role="candidate"), repeat(current, 0, 1.0, role="current"))
    shown = replace(data, trials=(lost, *data.trials[1:]), repeats=repeats)
    table = measured_again(shown)
    assert table is not None
    assert table.rows[0][:2] == ("current config", "stopped early")


def test_a_config_that_met_the_slos_nowhere_in_the_search_has_no_difference(
    data: ReportData,
) -> None:
    current = data.trials[0]
    assert current.score is not None
    never = replace(current, score=replace(current.score, feasible=False))
    repeats = (repeat(current, 0, 1.0, role="current"),)
    table = measured_again(replace(data, repeats=repeats, trials=(never, *data.trials[1:])))
    assert table is not None
    assert (table.rows[0][1], table.rows[0][-1]) == ("no load met the SLOs", "-")
    assert table.rows[0][2] == rate_text(rate(current, 1.0))


def test_a_minimised_metric_is_compared_in_its_unit(made: Made) -> None:
    data = made("improved", objective="minimize p99_latency at 300/s")
    table = measured_again(data)
    assert table is not None
    assert all(row[1].endswith("ms") and row[2].endswith("ms") for row in table.rows)


def test_a_run_without_confirmation_has_no_table(made: Made) -> None:
    data = made("kept")
    assert measured_again(data) is None
    assert selection_note(data) == ""
