"""One thing that lint says, and how much it matters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tuner.modelconfig.files import ModelFiles
from tuner.modelconfig.tree import locate


class Severity(Enum):
    """ERROR: the model does not load, or not as written. WARNING: it loads and will disappoint.
    NOTE: worth knowing, may be meant.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """What is wrong at a place; without a column the whole line is meant."""

    file: Path
    line: int
    column: int | None
    severity: Severity
    rule: str
    message: str
    hint: str = ""

    @property
    def place(self) -> str:
        """``file:line:column``."""
        return f"{self.file}:{self.line}" + ("" if self.column is None else f":{self.column}")


def error_at(files: ModelFiles, path: str, rule: str, message: str, hint: str) -> Finding:
    """At a field of the config, by its path."""
    line, column = locate(files.text, path)
    return Finding(files.path, line, column, Severity.ERROR, rule, message, hint)
