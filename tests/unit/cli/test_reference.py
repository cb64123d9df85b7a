"""docs/cli.md is made from the commands, and names every variable that they read."""

from __future__ import annotations

import re
from pathlib import Path

from tuner.cli.reference import with_commands

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "cli.md").read_text()
READ = re.compile(r"(?:environ(?:ment)?\.get\(|VARIABLE = )\"([A-Z_]+)\"|\"(TUNE_[A-Z_]+)\"")


def test_the_page_has_the_commands_as_they_are() -> None:
    """Else: python -m tuner.cli.reference docs/cli.md."""
    assert with_commands(PAGE) == PAGE


def test_each_variable_that_the_command_line_reads_is_named() -> None:
    sources = [*(ROOT / "tuner" / "cli").glob("*.py"), ROOT / "tuner" / "server" / "binaries.py"]
    code = "".join(source.read_text() for source in sources)
    names = {a or b for a, b in READ.findall(code)} - {
        "PATH",
        "LD_LIBRARY_PATH",
        "NO_PROXY",
        "TERM",
    }
    assert {"TUNE_DEBUG", "TUNE_STORAGE", "TUNE_TRITONSERVER", "NO_COLOR"} <= names
    assert names <= set(re.findall(r"^\| `([A-Z_]+)` \|", PAGE, re.MULTILINE))
