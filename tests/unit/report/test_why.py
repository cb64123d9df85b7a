"""`tune report RUN --why`: tables from the run's data."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.pages import STATUSES, Made, terminal_of

from tuner.report.blocks import Document, Table
from tuner.report.quantities import NOTHING
from tuner.report.why import configs, document


def tables_of(page: Document) -> dict[str, Table]:
    return {b.caption: b for b in page.blocks if isinstance(b, Table)}


def test_why_names_the_best_configs_and_the_slo_that_ends_each_ones_load(made: Made) -> None:
    data = made("improved")
    table = configs(data)
    assert table is not None
    scores = [float(row[2].rstrip("/s").replace(",", "")) for row in table.rows]
    assert scores == sorted(scores, reverse=True)
    assert any(row[1] == "current config" for row in table.rows)
    assert data.best is not None
    best = data.trial_of(data.best)
    assert best is not None
    assert str(best.number) in {row[0] for row in table.rows}
    (row,) = [row for row in table.rows if row[0] == str(best.number)]
    assert row[4].startswith("p99 latency ")


def test_why_has_what_fields_are_worth_and_where_the_time_went(made: Made) -> None:
    tables = tables_of(document(made("improved")))
    assert "What each field is worth, in the search" in tables
    assert "Where the time of a request goes" in tables
    assert "Where the time of the run went" in tables


@pytest.mark.parametrize("status", STATUSES)
def test_every_ending_can_be_explained(made: Made, status: str) -> None:
    assert terminal_of(document(made(status)))


def test_config_that_missed_no_slo_has_no_limit_and_one_that_met_none_no_goodput(
    made: Made,
) -> None:
    data = made("improved")
    assert data.best is not None
    best = data.trial_of(data.best)
    assert best is not None
    assert best.score is not None
    passed = replace(best, points=tuple(p for p in best.points if p.passed))
    lost = replace(best, score=replace(best.score, feasible=False))
    for trial, limit, goodput in ((passed, False, True), (lost, True, False)):
        trials = tuple(trial if t is best else t for t in data.trials)
        table = configs(replace(data, trials=trials))
        assert table is not None
        (row,) = [row for row in table.rows if row[0] == str(best.number)]
        assert (row[3] != NOTHING, row[4] != NOTHING) == (limit, limit)
        assert (row[2] != NOTHING) is goodput
