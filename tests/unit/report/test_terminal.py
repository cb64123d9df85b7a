"""Rows on a terminal."""

from __future__ import annotations

from tuner.report.terminal import columns


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
        "    change:" + " a" * 14,
        "     " + " a" * 16,
        "    run:",
        f"      {path}",
    ]
