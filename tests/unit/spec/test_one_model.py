"""How many models there are is known to `tuner/spec` alone."""

from __future__ import annotations

import re
from pathlib import Path

TUNER = Path(__file__).parents[3] / "tuner"
#: Of the short form, which nothing below `spec/` sees.
SHORT = re.compile(r"\bspec\.(model|space|slo|workload\.(inputs|batch_size))\b")
#: The one model of the short form, by the label that it has there.
UNNAMED = re.compile(r"models\[\"\"\]|candidate\.of\(\"\"\)")
IMPORT = re.compile(r"^\s*(from|import) ")


def lines_that(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(TUNER)}:{number}: {line.strip()}"
        for path in sorted(TUNER.rglob("*.py"))
        if path.relative_to(TUNER).parts[0] != "spec"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line) and not IMPORT.match(line)
    ]


def test_nothing_below_the_spec_sees_its_short_form() -> None:
    assert lines_that(SHORT) == []


def test_nothing_asks_for_the_model_that_has_no_name() -> None:
    """Whoever handles it handles every other, by its label."""
    assert lines_that(UNNAMED) == []
