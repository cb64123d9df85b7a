"""`tune report RUN --why`: tables from the run's data."""

from __future__ import annotations

import pytest
from builders.pages import STATUSES, Made, terminal_of

from tuner.report.blocks import Document, Table
from tuner.report.why import configs, document


def tables_of(shown: Document) -> dict[str, Table]:
    return {b.caption: b for b in shown.blocks if isinstance(b, Table)}


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
    shown = tables_of(document(made("improved")))
    assert "What each field is worth, in the search" in shown
    assert "Where the time of a request goes" in shown
    assert "Where the time of the run went" in shown


@pytest.mark.parametrize("status", STATUSES)
def test_every_ending_can_be_explained(made: Made, status: str) -> None:
    assert terminal_of(document(made(status)))
