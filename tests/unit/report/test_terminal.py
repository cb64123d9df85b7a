"""A report on a terminal: its first screen."""

from __future__ import annotations

import click
from builders.checks import facts
from builders.pages import Made

from tuner.record.status import CheckStatus
from tuner.report.check_document import document as check_document
from tuner.report.run_document import document
from tuner.report.terminal import columns, lines_of


def test_a_run_is_told_by_its_figures_its_change_and_how_to_undo_it(made: Made) -> None:
    lines = [click.unstyle(line) for line in lines_of(document(made("improved")))]
    assert lines[1] == "toy: Better: 99.7/s -> 1,915/s within p99 <= 40 ms, written"
    assert "  may I trust it? WITH CARE" in lines
    assert any(line.startswith("  yes   3 of 3 rounds on fresh servers  p99 ") for line in lines)
    assert "  the change in toy/config.pbtxt" in lines
    assert "  max_batch_size                                 1       16" in lines
    assert "    tune rollback toy --repository /models" in lines
    assert not any("diff" in line or "Environment" in line for line in lines)


def test_a_check_is_told_by_its_reason_its_slos_and_what_next() -> None:
    check = check_document(facts(CheckStatus.REGRESSION))
    lines = [click.unstyle(line) for line in lines_of(check)]
    assert lines[1] == "<b>toy</b>: regression"
    assert "  p99 latency                  38 of 40 ms  (met)" in lines
    assert "    tune run 'a spec.yaml' --no-write" in lines


def test_columns_are_even() -> None:
    rows = [("a", "bb", "c"), ("aaa", "b", "c")]
    assert list(columns(rows)) == ["  a    bb  c", "  aaa  b   c"]


def test_columns_that_find_no_room_on_a_terminal_are_below_their_row() -> None:
    path = "results/20260301-120000-a-model-whose-name-is-long-ab12"
    rows = [
        ("ended", "gain", "change", "run"),
        ("kept", "", "", "r"),
        ("better", "2x", "a " * 30, path),
    ]
    assert list(columns(rows, 40)) == [
        "  ended   gain",
        "  kept",
        "    run: r",
        "  better  2x",
        "    change: a a a a a a a a a a a a a a",
        "      a a a a a a a a a a a a a a a a",
        "    run:",
        f"      {path}",
    ]
