"""Mutants that were looked at are still where it is said."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_each_survivor_changes_a_line_that_is_there() -> None:
    survivors = tomllib.loads((ROOT / "tests/mutation/survivors.toml").read_text())
    gone = []
    for path, reasons in survivors.items():
        lines = {line.strip() for line in (ROOT / path).read_text().splitlines()}
        for change in (c for changes in reasons.values() for c in changes):
            was = [line[2:] for line in change.splitlines() if line.startswith("- ")]
            gone += [f"{path}: {line}" for line in was if line not in lines]
    assert gone == []
